"""Pretrained backbones of other libraries, by name.

No code comes from a hub or from a model: a network is built by the installed library, from a name or plain settings.
"""

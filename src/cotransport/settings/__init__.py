"""Settings: the sections of a recipe, their validation, `--set` overrides and YAML. Nothing here imports torch."""

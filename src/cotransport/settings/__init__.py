"""Every setting of a run, validated."""

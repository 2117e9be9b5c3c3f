"""Study files, TOML to checked parts and back.

`decode` bytes to a table; `lines` of its keys; `sections`, `space` and `asked` check it; `read` does all; `write`.
"""

"""How records of achieved speed are fitted to published measurements.

- `kernel_rows`: the stored rows of single kernels, typed; `kernel_import` keeps the usable ones of a collection
- `chips`: what the datasheet of a row's chip promises
- `effects`: one number for each chip, engine and format, pooled
- `cells`: the law of a kernel fitted to the rows of one chip, engine and format
- `attention`, `gemm`, `allreduce`: which rows, which law
- `kernels`: the record of all three; `kernel_held_out`: how well it does on what it has not seen
"""

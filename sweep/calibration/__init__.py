"""How records of achieved speed are fitted to published measurements.

- `kernel_rows`: the stored rows of single kernels, typed; `kernel_import` keeps the usable ones of a collection
- `chips`: what the datasheet of a row's chip promises
- `effects`: one number for each chip, engine and format, pooled
- `cells`: the law of a kernel fitted to the rows of one chip, engine and format
- `attention`, `gemm`, `allreduce`: which rows, which law
- `kernels`: the record of all three
- `kernel_times`: what the record says of a row; `kernel_checks`: growth with context and the gain of 8-bit KV;
  `kernel_held_out`: chips and engines it has not seen

Whole steps, on top of kernels:

- `steps`: measured rows with the work of their steps, and what their metric counts
- `estimate_fit`: the most likely terms of some rows, and their covariance; `forms`: other forms of the model
- `held_out`: rows predicted by fits without their group; `spreads`: what bands need for them
- `accuracy`: what that says by group; `own_rows`: what ten rows of one's own are worth
- `record`: fits as files; `update`: a record that is told a user's rows
- `estimate`: the command that does all of it
"""

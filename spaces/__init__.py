"""What a design is.

- `axes`, `values`, `space`: the named axes, how a study states them, the grid and its points
- `hardware`, `tiers`, `models`, `engines`, `quality`, `transfer`: catalogue records, loaded and checked
- `kernel_record`, `architectures`: what kernels reach of a chip's datasheet, and which chips are relatives
- `labels`, `aliases`: what others call models and devices
- `figures`, `sourced_file`, `energy`: what a figure may be, and how files state it; `assumptions`: a user's own
- `design`, `engine_columns`, `columns`, `record_columns`: every number the laws read, and how a position becomes one
- `units`, `errors`: units at the edge; faults with their remedy
"""

"""What a design is.

- `axes`, `values`, `space`: the named axes, how a study states them, the grid and its points
- `hardware`, `tiers`, `models`, `quality`, `transfer`: catalogue records, loaded and checked
- `figures`, `sourced_file`, `energy`: what a figure may be, and how files state it; `assumptions`: a user's own
- `design`, `columns`: every number the laws read, and how a grid position becomes one
- `units`, `errors`: units at the edge; faults with their remedy
"""

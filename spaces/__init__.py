"""What a design is.

- `axes`, `values`, `space`: the named axes, how a study states them, the grid and its points
- `hardware`, `models`, `quality`: catalogue records, loaded and checked; `figures`: what a device's figures may be
- `design`, `columns`: every number the laws read, and how a grid position becomes one
- `units`, `errors`: units at the edge; faults with their remedy
"""

"""The quality model: published rows, the fit of its curves, what the fit is worth on sources left out.

- `rows`: published numbers as settings, names, tasks and losses; `stamp`: what records of them are made from
- `terms`, `hierarchy`: rows as arrays, and their hazards with an effect for each family, task, method and subtask
- `central`, `upper`: the fits of the central and of the upper curves; `record`: both as the record that ships
- `held_out`: the same without the rows of one source; `fit`: the command that rewrites the record
- `held_out_record`: losses of rows whose source was left out, as a record, and the command that rewrites it
- `prediction`, `scores`: rows under a record, and their errors
- `own_points`: a record narrowed by a user's points, `factors`: what these say of a curve; `probe_check`: its worth
- `nearest`: the published rows nearest to a design
"""

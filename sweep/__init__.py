"""What we do with designs.

- `evaluate`, `crossover`, `remedies`, `explain`: single designs
- `validate_capacity`, `validate_speed`, `validate_quality`, `measured`, `ceiling_check`: measurements against the laws
- `calibrate_runs`, `calibrate_quality`: records adapted to results of one's own
- `calibration`: how records of achieved speed are fitted
- `study`, `objective`: what is asked
- `compact`, `layout`, `kernel`, `reduction`, `points`, `stream`, `front`, `tally`: the grid engine
- `run`, `results`, `store`, `checkpoint`, `progress`: a study on disk, resumable
- `pareto`, `search`, `report`, `export`: what to make of it
- `cli`, `commands`: the command line
"""

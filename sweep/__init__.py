"""What we do with designs.

- `evaluate`, `crossover`, `explain`: single designs
- `study`, `objective`: what is asked
- `compact`, `layout`, `kernel`, `reduction`, `points`, `stream`, `front`, `tally`: the grid engine
- `run`, `results`, `store`, `checkpoint`, `progress`: a study on disk, resumable
- `pareto`, `search`, `report`, `export`: what to make of it
- `cli`, `commands`: the command line
"""

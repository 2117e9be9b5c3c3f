"""What a design costs: pure laws, SI in, SI out.

- `kv`, `weights`, `compute`, `collectives`: the ledger of bytes and FLOP
- `time`, `capacity`, `wall`, `energy`, `cost`, `quality`, `status`: what the ledger comes to
- `tiers`, `transfer`: memory beyond the device's own, and what the size of a page does to the link
- `step`: one decode step, put together
- `metrics`, `register`: the metrics and labels by name, and `evaluate`
"""

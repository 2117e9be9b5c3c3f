"""What a design costs: pure laws, SI in, SI out.

- `kv`, `weights`, `compute`, `collectives`: the ledger of bytes and FLOP
- `prefix`, `sparse_read`, `paging`, `speculation`, `dies`: remedies and placements with a law of their own
- `parallel`: who of the replica's devices does what
- `tiers`, `transfer`: memory beyond the device's own, and what the size of a page does to the link
- `kernels`: time of one attention, product or all-reduce, from what the kernel reaches
- `prefill`: prompts, the time to the first token, reloading against computing again
- `memory`, `inverse`: what fits; `engine_memory`, `startup`, `pages`, `pool`: how an engine divides memory
- `time`, `wall`, `energy`, `cost`, `quality`, `status`: what the ledger comes to
- `whole`: whole parts of quotients; `known`: work that is left out where a neutral axis makes it superfluous
- `step`: one decode step, put together
- `metrics`, `register`: the metrics and labels by name, and `evaluate`
"""

"""The traffic room: what people's logs, metrics and usage reports say of their traffic, as one small distribution.

In order, from files to what a plan reads:

- Orders: `order` (what to ingest), `inputs`, `storage` and `disk` (which files, and where), `documents` (small files).
- Formats: `readers` (request logs, a module each, to rows judged by `rules`), `histograms` (metrics of engines), `sums`
  (usage reports); `aggregated` chooses among the last two. `privacy` guards what is read, `times` reads stamps.
- Counting: `ingest` orders the passes of `measure` over the rows of `scan`, read by the embedded `engine`; `tables`
  holds what they add up, `attempts` and `sampling` what it means, `prefix` and `reuse` the cached prompts, `dropped`
  and `remarks` what the report says. `warehouse` counts the same in somebody else's engine.
- The distribution: `schema` and `canonical` (on disk), `buckets` and `grid` (cells, minutes and hours),
  `canonical_tables` (rows of its tables), `operations` (merge, scale, split, small cells), `export` (a trace of it).
- What it says: `source` makes `types.Traffic` of one model, under a `coupling` where only marginals are known; `law`
  answers questions about lengths and bursts, `stretch` finds the hour to size for, `season` and `periods` the week,
  `growth` and `demand` the horizon, `figures` everything that is shown.
"""

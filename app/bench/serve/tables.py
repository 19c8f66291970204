"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from app.bench.serve.report import Records, Report


def tables(report: Report) -> Iterator[Table]:
    """Records, where the time of ours goes, and free text."""
    yield _records_table(report)
    if any(records.stages_s for records in report.records):
        yield _stages_table(report)
    yield _free_table(report)


def _records_table(report: Report) -> Table:
    ours = report.records[0].server
    head = ("clients", "server", "valid", "fields right", "prompt", "tokens", "ms/record", "ratio")
    table = Table(*head, title=f"Records ({report.machine})", caption=f"ratio: the time of {ours} by that of the row")
    times = {records.clients: records.ratios for records in report.records if records.server == ours}
    for records in report.records:
        ratio = times[records.clients].get(records.server)
        table.add_row(
            str(records.clients),
            records.server,
            f"{records.valid} of {records.records}",
            _share(sum(records.right.values()), len(records.right) * records.records),
            f"{records.prompt_tokens / records.records:.0f}",
            f"{records.completion_tokens / records.records:.1f}",
            f"{records.ms_per_record:.0f}",
            "" if ratio is None else f"{ratio:.2f}",
        )
    return table


def _stages_table(report: Report) -> Table:
    measured = [records for records in report.records if records.stages_s]
    stages = list(measured[0].stages_s)
    table = Table("clients", "server", *stages, "steps, of all time", title="Where the time of steps goes")
    for records in measured:
        table.add_row(str(records.clients), records.server, *_stage_cells(records, stages))
    return table


def _stage_cells(records: Records, stages: list[str]) -> Iterator[str]:
    total_s = sum(records.stages_s.values())
    for stage in stages:
        yield _share(records.stages_s[stage], total_s)
    yield _share(total_s, records.elapsed_s)


def _free_table(report: Report) -> Table:
    table = Table("clients", "server", "decode, tokens/s", "prefill, tokens/s", title="Free text, without a schema")
    for free in report.free:
        table.add_row(
            str(free.clients), free.server, f"{free.decode_tokens_per_s:.1f}", f"{free.prefill_tokens_per_s:.0f}"
        )
    return table


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""

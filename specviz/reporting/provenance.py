"""Where a report's numbers come from: target, drafters, decoding, costs and software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specviz.cost import CostModel, need_cost
from specviz.markup import table_html
from specviz.trace.trace import Trace


def about(drafter: Mapping[str, Any]) -> str:
    """A drafter's caption, and whether its cost is simulated."""
    said = str(drafter.get("caption", ""))
    if drafter.get("simulated_cost"):
        said += ". Its measured cost is simulated: it does not stand for what it imitates"
    return said.strip(". ") + "."


def whose(cost: CostModel, drafter: str, trace: Trace) -> str:
    """Whose cost it is, for one drafter."""
    simulated = drafter in cost.simulated or (
        cost.provenance == "measured here"
        and bool(trace.meta.drafters[drafter].get("simulated_cost"))
    )
    return cost.provenance + (f", simulated for {drafter}" if simulated else "")


def decoding(trace: Trace) -> str:
    """Greedy, or the sampling settings."""
    if trace.meta.greedy:
        return "greedy decoding"
    return "sampled, " + ", ".join(f"{k} {v:g}" for k, v in trace.meta.sampling.items())


def provenance(trace: Trace) -> str:
    """Everything needed to read the numbers and to repeat them, as a table."""
    meta = trace.meta
    target = meta.target
    template = str(meta.template.get("sha256", ""))
    rows = [
        ("target", f"{target.get('name', '')} · {target.get('caption', '')}"),
        ("numbers", f"{target.get('dtype', '')} on {target.get('device', '')}"),
        ("decoding", f"{decoding(trace)}, at most {meta.max_new_tokens} tokens, seed {meta.seed}"),
        (
            "prompts",
            ", ".join(
                f"{n} {t}"
                for t, n in trace.sequences["content_type"].value_counts(sort=False).items()
            )
            or "none",
        ),
        *(
            (f"drafter {name}", f"K = {drafter.get('k', meta.k)} · {about(drafter)}")
            for name, drafter in meta.drafters.items()
        ),
        ("chat template", f"SHA-256 {template}" if template else "none (prompts as given)"),
        ("software", ", ".join(f"{n} {v}" for n, v in meta.software.items()) or "not recorded"),
        (
            "trace",
            f"{meta.kind}, schema {meta.schema_version}"
            + (f", {meta.created}" if meta.created else ""),
        ),
    ]
    if meta.certificate:
        rows.append(("certificate", ", ".join(f"{k}: {v}" for k, v in meta.certificate.items())))
    lines = [{"what": what, "this page": value} for what, value in rows]
    return table_html(lines)


def distinct(costs: Sequence[CostModel]) -> list[CostModel]:
    """Every cost model once; two that share a name would share a panel."""
    out: list[CostModel] = []
    for cost in costs:
        if cost in out:
            continue
        same = sum(c.name.split(" #")[0] == cost.name for c in out)
        if same:
            cost = CostModel.from_dict({**cost.to_dict(), "name": f"{cost.name} #{same + 1}"})
        out.append(cost)
    return out


def cost_models(costs: object) -> list[CostModel]:
    """One cost model or several as a list; anything else is refused."""
    if costs is None or isinstance(costs, CostModel):
        return [] if costs is None else [costs]
    if not isinstance(costs, Iterable) or isinstance(costs, (str, Mapping)):
        costs = [costs]
    return [need_cost(cost) for cost in costs]

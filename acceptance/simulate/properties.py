"""Random simulated cases, checked by code that knows nothing of the simulator; JSON on stdout. Argument: how many."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from hypothesis import HealthCheck, Phase, given, settings
from tests.simulate.cases import Drawn, drawn, overtaken
from tests.simulate.mutants import MUTANTS, VersionsOvertake
from tests.simulate.rules import violations
from tests.simulate.test_mutations import notices

from sennit.simulate.bounds import bounds

seen: Counter[str] = Counter()
schedules: Counter[str] = Counter()


@settings(
    max_examples=int(sys.argv[1]), deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(drawn())
def look(case: Drawn) -> None:
    """One case; deadlocks and violations are counted, not raised."""
    seen["cases"] += 1
    schedules[case.name] += 1
    setting = case.setting
    try:
        outcome, spans = case.run()
    except AssertionError:
        seen["deadlocks"] += 1
        return
    seen["violations"] += bool(violations(case.case, spans))
    bound = bounds(case.load, case.sync(), setting.in_flight, split=setting.split, cluster=case.cluster)
    seen["below the bound"] += bound.makespan > outcome.makespan * (1 + 1e-9)


look()
noticed = {mutant.__name__: notices(mutant, rule) for mutant, rule in MUTANTS.items()}
case = overtaken()
noticed[VersionsOvertake.__name__] = bool(violations(case.case, case.run(VersionsOvertake)[1]))
json.dump(
    {
        **{name: seen[name] for name in ("cases", "deadlocks", "violations", "below the bound")},
        "schedules": dict(schedules),
        "rules broken": len(noticed),
        "not noticed": [name for name, found in noticed.items() if not found],
    },
    sys.stdout,
    indent=1,
)

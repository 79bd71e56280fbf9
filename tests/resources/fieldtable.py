"""All fields of the spec, from their tables."""

from tests.resources.fields_affinity import AFFINITY
from tests.resources.fields_children import AROUND, LIMITER, OPERATOR
from tests.resources.fields_engine import ENGINE, MODEL
from tests.resources.fields_pod import SCHEDULING, SECURITY, VOLUMES
from tests.resources.fields_policy import ADMISSION, PEOPLE, RUNNING

FIELDS = (
    *ENGINE,
    *MODEL,
    *SCHEDULING,
    *AFFINITY,
    *SECURITY,
    *VOLUMES,
    *LIMITER,
    *ADMISSION,
    *PEOPLE,
    *RUNNING,
    *AROUND,
    *OPERATOR,
)

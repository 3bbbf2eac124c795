from isthmus.health.reservations import words
from isthmus.model.slurm import ReservationRequest

REQUEST = ReservationRequest(
    name="health-n1", node_list=("n1",), users=("root", "alice"), flags=("MAINT", "IGNORE_JOBS")
)


def test_a_reservation_is_made_by_scontrol() -> None:
    assert words(REQUEST, new=True) == (
        "create",
        "reservation",
        "ReservationName=health-n1",
        "Nodes=n1",
        "Users=root,alice",
        "Flags=MAINT,IGNORE_JOBS",
        "StartTime=now-1minute",
        "Duration=infinite",
    )


def test_the_nodes_of_a_reservation_are_changed() -> None:
    request = ReservationRequest(name="health-n1", node_list=("n1",))
    assert words(request, new=False) == ("update", "ReservationName=health-n1", "Nodes=n1")


def test_names_that_are_none_are_left_out() -> None:
    request = ReservationRequest(name="r", node_list=("n1",), users=("-x", "a,b", "a b", "é", "", "ok.1_x"))
    assert "Users=ok.1_x" in words(request, new=True)

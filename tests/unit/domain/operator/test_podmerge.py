"""A user's pod template over ours."""

from isthmus.domain.operator.podmerge import container, merged, pod_spec


def test_named_things_are_merged_by_their_names() -> None:
    ours = {"containers": [{"name": "slurmd", "image": "a", "env": [{"name": "A", "value": "1"}]}]}
    wish = {"containers": [{"name": "slurmd", "env": [{"name": "B", "value": "2"}]}, {"name": "side"}]}
    assert merged(ours, wish) == {
        "containers": [
            {"name": "slurmd", "image": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "side"},
        ]
    }


def test_weakness_w26_false_zero_and_empty_are_wishes_too() -> None:
    ours = {"securityContext": {"privileged": True, "runAsUser": 401}, "hostname": "a"}
    wish = {"securityContext": {"privileged": False, "runAsUser": 0}, "hostname": ""}
    assert merged(ours, wish) == {"securityContext": {"privileged": False, "runAsUser": 0}, "hostname": ""}


def test_null_takes_ours_away() -> None:
    assert merged({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"c": None}}) == {"b": {}}


def test_arguments_go_behind_ours_and_other_lists_take_their_place() -> None:
    assert merged({"args": ["-D"], "command": ["a"]}, {"args": ["-v"], "command": ["b"]}) == {
        "args": ["-D", "-v"],
        "command": ["b"],
    }


def test_a_probe_looks_in_one_way_only() -> None:
    ours = {"readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}
    wish = {"readinessProbe": {"httpGet": {"path": "/readyz", "port": 6817}}}
    assert merged(ours, wish) == {
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 6817}, "periodSeconds": 1}
    }


def test_the_name_of_a_container_stays_ours() -> None:
    assert container({"name": "slurmctld"}, {"name": "other", "image": "b"}) == {"name": "slurmctld", "image": "b"}


def test_wishes_for_single_containers_come_last() -> None:
    ours = {
        "containers": [{"name": "slurmctld", "image": "a"}],
        "initContainers": [{"name": "munge", "image": "a"}],
    }
    wish = {"containers": [{"name": "slurmctld", "image": "b"}], "priorityClassName": "high"}
    assert pod_spec(ours, wish, {"slurmctld": {"image": "c"}, "munge": {"image": "d"}}) == {
        "containers": [{"name": "slurmctld", "image": "c"}],
        "initContainers": [{"name": "munge", "image": "d"}],
        "priorityClassName": "high",
    }


def test_a_list_of_something_else_is_left_to_the_api_server() -> None:
    assert merged({"volumes": [{"name": "a"}]}, {"volumes": ["nonsense"]}) == {"volumes": ["nonsense"]}

"""The settings of the bridge, as people write them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.bridge import values
from isthmus.bridge.config import Config, Features, load, tls, tokens
from isthmus.domain.bridge.tenancy import Tenancy
from isthmus.errors import Terminal
from isthmus.local.pki import Authority
from isthmus.model.pod import LabelSelector, Requirement
from isthmus.slurm.auth import EnvironmentToken, FileToken, TokenError

# The file of the documents, its comments included.
DOCUMENTED = """
# 调度器配置
schedulerName: "slurm-bridge"

# Slurm REST API 配置
slurmRestApi: "http://slurm-controller:6820"

# 管理的命名空间
managedNamespaces:
  - "batch"
  - "hpc"
  - "ai-workloads"

# 命名空间选择器 (动态选择命名空间)
managedNamespaceSelector:
  matchLabels:
    slurm.managed: "true"

# 多类别安全标签
mcsLabel: ""

# Slurm 分区
partition: "normal"

# 高级配置
features:
  enableLeaderElection: true
  enableHTTP2: false
  secureMetrics: false
"""
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJyb290In0.c2lnbmF0dXJl"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def refused(path: Path) -> str:
    with pytest.raises(Terminal) as caught:
        load(path, environ={})
    return str(caught.value)


def test_labels_that_become_features_are_listed_by_their_keys(write: Write) -> None:
    text = "slurmRestApi: http://s:6820\nfeatureLabels: [topology.kubernetes.io/zone, gpu]\n"
    assert load(write(text), environ={}).feature_labels == ("topology.kubernetes.io/zone", "gpu")
    assert "featureLabels[0]: 'a b' is not valid; write a list of keys of labels" in refused(
        write('featureLabels: ["a b"]')
    )


def test_the_documented_file_is_read(write: Write) -> None:
    assert load(write(DOCUMENTED), environ={}) == Config(
        scheduler_name="slurm-bridge",
        slurm_rest_api=("http://slurm-controller:6820",),
        managed_namespaces=("batch", "hpc", "ai-workloads"),
        managed_namespace_selector=LabelSelector({"slurm.managed": "true"}),
        mcs_label="",
        partition="normal",
        features=Features(enable_leader_election=True, enable_http2=False, secure_metrics=False),
    )


def test_our_own_keys_are_read(write: Write) -> None:
    config = load(
        write("""
slurmRestApi: [http://a:6820, https://b:6820/]
slurmJwtFile: /run/token
placeholder: batch
exclusive: false
taint: NoSchedule
tenancy: strict
partition: main
niceFromPriorityClass: true
enforce: true
gres:
  nvidia.com/gpu: gpu
  example.com/fpga: fpga:xilinx
deviceProfiles:
  - {name: a100, driver: gpu.nvidia.com, selector: "device.attributes['gpu.nvidia.com'].model == 'A100'"}
"""),
        environ={},
    )
    assert config.slurm_rest_api == ("http://a:6820", "https://b:6820")
    assert config.slurm_jwt_file == Path("/run/token")
    assert (config.placeholder, config.exclusive, config.taint) == ("batch", False, "NoSchedule")
    assert config.without_policy == Tenancy("strict", "main")
    assert (config.nice_from_priority_class, config.enforce) == (True, True)
    assert config.gres == {"nvidia.com/gpu": "gpu", "example.com/fpga": "fpga:xilinx"}
    (profile,) = config.device_profiles
    assert (profile.name, profile.driver, profile.backend.gres_name) == ("a100", "gpu.nvidia.com", "gpu")


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "features:\n", "managedNamespaces:\nmanagedNamespaceSelector: {}\n"]
)
def test_an_empty_file_means_the_defaults(write: Write, text: str) -> None:
    assert load(write(text), environ={}) == Config()
    assert Config().scheduler_name == "slurm-bridge-scheduler"
    assert Config().features.enable_leader_election


def test_the_environment_overrides_the_file_and_flags_override_both(write: Write) -> None:
    file = write("slurmRestApi: http://file:6820\npartition: file\nfeatures: {secureMetrics: false}\n")
    environ = {
        "SLURM_REST_API": "http://env:6820, http://other:6820",
        "NAMESPACE_SELECTOR": "slurm.managed=true",
        "SLURM_JWT_FILE": "/env/token",
    }
    config = load(file, environ=environ, overrides={"features.secureMetrics": True})
    assert config.slurm_rest_api == ("http://env:6820", "http://other:6820")
    assert config.managed_namespace_selector == LabelSelector({"slurm.managed": "true"})
    assert config.slurm_jwt_file == Path("/env/token")
    assert config.partition == "file"
    assert config.features.secure_metrics
    assert load(file, environ=environ, overrides={"slurmRestApi": "http://flag:1"}).slurm_rest_api == (
        "http://flag:1",
    )


def test_an_empty_variable_says_nothing(write: Write) -> None:
    assert load(write("slurmRestApi: http://a:1"), environ={"SLURM_REST_API": ""}).slurm_rest_api == ("http://a:1",)


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.yaml").startswith(f"{tmp_path}/none.yaml cannot be read: No such file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schedularName: x", "schedularName: unknown setting; did you mean schedulerName?"),
        ("slurmRestAPI: http://a:1", "slurmRestAPI: unknown setting; did you mean slurmRestApi?"),
        ("features: {enableHttp2: true}", "did you mean features.enableHTTP2?"),
        ("secureMetrics: true", "did you mean features.secureMetrics?"),
        ("zzz: 1", "zzz: unknown setting; there are schedulerName, slurmRestApi, "),
        ("features: yes please", "features: unknown setting"),
        ("partition: a\npartition: b", ", line 2: partition is set twice"),
        ("schedulerName: My_Scheduler", "schedulerName: 'My_Scheduler' is not valid; write a name in lower case"),
        ("schedulerName:", "schedulerName: expected a string, got nothing; write a name"),
        ("managedNamespaces: batch", "managedNamespaces: expected a list, got a string; write a list of names"),
        (
            "managedNamespaces: [Batch]",
            "managedNamespaces[0]: 'Batch' is not valid; write a list of names",
        ),
        ("managedNamespaces: [1]", "managedNamespaces[0]: expected a string, got a number (quote it)"),
        ("managedNamespaceSelector: {matchLabels: {a: true}}", "matchLabels: expected a string, got true or false"),
        (
            "managedNamespaceSelector: {labels: {a: b}}",
            "Selector: unknown field `labels`; write matchLabels",
        ),
        ("managedNamespaceSelector: {matchExpressions: [{key: a, operator: In}]}", "In without values"),
        ("managedNamespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "Exists with"),
        (
            "managedNamespaceSelector: {matchExpressions: [{key: a, operator: DoesNotExist, values: [b]}]}",
            "DoesNotE",
        ),
        (
            "managedNamespaceSelector: {matchExpressions: [{key: a, operator: Is}]}",
            "[0].operator: invalid value 'Is'",
        ),
        (
            "slurmRestApi: slurm:6820",
            "'slurm:6820' is not the URL of a slurmrestd; write the URL",
        ),
        ("slurmRestApi: http://", "is not the URL"),
        ("slurmRestApi: http://a:99999", "is not the URL"),
        ("slurmRestApi: {a: b}", "slurmRestApi: expected a list, got a mapping; write the URL of slurmrestd"),
        ("slurmJwtFile: token", "'token' is not valid; write an absolute path"),
        ("partition: a b", "'a b' is not valid; write the name of a partition"),
        ("mcsLabel: 'a,b'", "'a,b' is not valid; write one MCS label"),
        ("placeholder: sleep", "invalid value 'sleep'; write auto, external or batch"),
        ("tenancy: loose", "invalid value 'loose'; write auto, open or strict"),
        ("exclusive: 'no'", "exclusive: expected true or false, got a string; write true or false"),
        ("taint: noexecute", "invalid value 'noexecute'; write NoExecute, NoSchedule or PreferNoSchedule"),
        (
            "gres: {nvidia.com/gpu: gpu, gpu: gpu}",
            "gres: 'gpu: gpu' is not valid; write for each extended resource its GRES",
        ),
        (
            "gres: {nvidia.com/gpu: 'gpu:a:b'}",
            "gres: 'nvidia.com/gpu: gpu:a:b' is not valid; write for each extended",
        ),
        ("- a", "contains no settings"),
        ("a: [", ", line 1"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("\0", "is not YAML"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(write: Write, text: str, said: str) -> None:
    path = write(text)
    message = refused(path)
    assert message.startswith(str(path))
    assert said in message


def test_everything_that_is_wrong_is_told_at_once(write: Write) -> None:
    message = refused(write("schedulerNam: x\npartition: 'a b'\nexclusive: 1\n"))
    assert len(message.splitlines()) == 4


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(
        Terminal,
        match=r"(?s)the environment is not valid.*NAMESPACE_SELECTOR.*: 'x y' is not valid; write",
    ):
        load(None, environ={"NAMESPACE_SELECTOR": "x y"})


def test_a_password_in_a_url_is_refused_and_not_repeated(write: Write) -> None:
    message = refused(write("slurmRestApi: http://user:hunter2@slurm:6820"))
    assert "is not the URL" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("slurm.managed=true", LabelSelector({"slurm.managed": "true"})),
        ("a==b, c = d", LabelSelector({"a": "b", "c": "d"})),
        ("a!=b", LabelSelector(match_expressions=(Requirement("a", "NotIn", ("b",)),))),
        (
            "x.io/a in (b, c),d",
            LabelSelector({}, (Requirement("x.io/a", "In", ("b", "c")), Requirement("d", "Exists"))),
        ),
        (
            "a notin (b),!c",
            LabelSelector({}, (Requirement("a", "NotIn", ("b",)), Requirement("c", "DoesNotExist"))),
        ),
        ("a=", LabelSelector({"a": ""})),
    ],
)
def test_a_selector_is_read_as_kubectl_reads_it(text: str, selector: LabelSelector) -> None:
    assert values.selector(text) == selector


@pytest.mark.parametrize("text", ["a in (b", "a in b", "=b", "a=b c", "a in ()extra", "-a", "a/b/c", "!"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not valid|unbalanced|regex"):
        values.selector(text)


@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        values.selector(text)
        values.endpoints(text)
    except ValueError:
        pass


def test_a_token_comes_from_the_variable_or_else_from_the_file(tmp_path: Path) -> None:
    config = Config(slurm_jwt_file=tmp_path / "auth-token")
    assert isinstance(source := tokens(config, {"SLURM_JWT": f"SLURM_JWT={TOKEN}"}), EnvironmentToken)
    assert source.token() == TOKEN
    later = tokens(config, {})
    assert isinstance(later, FileToken)
    with pytest.raises(TokenError, match="auth-token cannot be read"):
        later.token()
    config.slurm_jwt_file.write_text(f"SLURM_JWT={TOKEN}\n")
    assert later.token() == TOKEN
    assert TOKEN not in repr(config) + repr(source) + repr(later)


def test_certificates_for_slurmrestd_come_from_a_directory(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", "slurm")
    (tmp_path / "ca.crt").write_bytes(authority.certificate.read_bytes())
    context = tls(Config(slurm_tls_directory=tmp_path))
    assert context is not None
    assert context.get_ca_certs()
    assert tls(Config()) is None


def test_weakness_34_certificates_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match=str(tmp_path)):
        tls(Config(slurm_tls_directory=tmp_path))

"""Slurm's configuration: text survives, values stay values, and no text does worse than an error of ours."""

from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import ConfigError, Directive

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,8}", fullmatch=True)
LINES = st.text("AB=1 \\#\"\t'é", max_size=30)


@given(st.dictionaries(KEYS, st.text(max_size=30), min_size=1, max_size=4))
def test_a_value_that_is_accepted_reads_back_as_itself_and_nothing_else(settings: dict[str, str]) -> None:
    try:
        line = Directive.of(settings)
    except ConfigError:
        return
    rendered = line.render()
    assert len(rendered.splitlines()) == 1
    assert slurmconf.parse_line(rendered).settings == tuple(settings.items())
    (parsed,) = slurmconf.parse(f"{rendered}\n").lines
    assert isinstance(parsed, Directive)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), min_size=1, max_size=2))
def test_no_key_breaks_out_of_its_line(settings: dict[str, str]) -> None:
    try:
        rendered = Directive.of(settings).render()
    except ConfigError:
        return
    assert [key for key, _ in slurmconf.parse_line(rendered).settings] == list(settings)


@given(st.lists(LINES))
def test_text_that_can_be_read_is_rendered_to_the_letter(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    try:
        config = slurmconf.parse(text)
    except ConfigError:
        return
    assert config.render() == text


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda raw: raw.decode("latin-1"))))
def test_any_text_is_a_configuration_or_an_error_of_ours(text: str) -> None:
    try:
        config = slurmconf.parse(text)
    except ConfigError:
        return
    for line in config.directives():
        assert line.get(line.key) == line.value

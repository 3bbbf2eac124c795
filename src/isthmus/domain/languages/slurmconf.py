r"""The language of slurm.conf, slurmdbd.conf, cgroup.conf, gres.conf, topology.conf and plugstack.conf.

    # a comment
    ClusterName=alpha
    NodeName=n[1-4] CPUs=8 \
        Feature="big, fast"
    Include nodes.conf

Two ways in, one way out. Text that a person wrote is parsed and rendered back exactly as it was, comments and
continuation lines included. What code of ours builds is checked value by value: nothing that goes into a field can
end the line, begin a comment, open a second setting or include a file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from isthmus.errors import Terminal

Value: TypeAlias = str | int | bool | tuple[str, ...]
"""What a setting may be given as: a flag becomes YES or NO, a tuple a list with commas."""

_KEY = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
# As slurmctld reads it: key, an optional operator, then a quoted value or one without spaces.
_SETTING = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:"([^"]*)"|([^"\s]\S*))(?=\s|$)', re.ASCII)
_INCLUDE = re.compile(r"include\s+(\S.*)", re.ASCII | re.IGNORECASE)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\[^\S\n]*$", re.ASCII)
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*(#)")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PATH = re.compile(r"[A-Za-z0-9_./%+,:=@-]+", re.ASCII)


class ConfigError(Terminal):
    """The text is not a Slurm configuration, or the value cannot be written into one."""


class Directive(msgspec.Struct, frozen=True):
    """One line of settings. The first names it: `NodeName=n1 CPUs=4` is the NodeName line of n1."""

    settings: tuple[tuple[str, str], ...]
    source: str | None = None
    """The text that it was read from; None when it was built."""

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> "Directive":
        """Build a line, with every key and value checked."""
        if not settings:
            raise ConfigError("a configuration line needs at least one setting")
        line = cls(tuple((_checked_key(key), _text(value, key=key)) for key, value in settings.items()))
        _refuse_repeated_keys(line)
        return line

    @property
    def key(self) -> str:
        """What the line is about, such as NodeName."""
        return self.settings[0][0]

    @property
    def value(self) -> str:
        """The value of its first setting, such as the node's name."""
        return self.settings[0][1]

    def get(self, key: str) -> str | None:
        """Find a setting of this line; keys do not mind about case."""
        wanted = key.lower()
        return next((value for name, value in self.settings if name.lower() == wanted), None)

    def render(self) -> str:
        """Write the line: as it was read, or as its checked settings say."""
        if self.source is not None:
            return self.source
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.settings)


class Include(msgspec.Struct, frozen=True):
    """Another file stands here. Who reads the configuration decides whether to follow it."""

    path: str
    source: str | None = None

    def render(self) -> str:
        return self.source if self.source is not None else f"Include {self.path}"


class Note(msgspec.Struct, frozen=True):
    """A comment or an empty line."""

    source: str

    @classmethod
    def of(cls, text: str) -> "Note":
        """Build a comment of one line."""
        if _UNPRINTABLE.search(text) or text.endswith("\\"):
            raise ConfigError(f"the comment {text[:40]!r} contains a line break or ends with a backslash")
        return cls(f"# {text}")

    def render(self) -> str:
        return self.source


class SpankPlugin(msgspec.Struct, frozen=True):
    """A line of plugstack.conf, whose language is its own: whether it must load, what, and with which arguments."""

    path: str
    required: bool
    arguments: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str, *, required: bool, arguments: Iterable[str] = ()) -> "SpankPlugin":
        """Build the line with a checked path and arguments."""
        return cls(_checked_path(path), required, tuple(_checked_path(argument) for argument in arguments))

    def render(self) -> str:
        return " ".join(("required" if self.required else "optional", self.path, *self.arguments))


Line: TypeAlias = Directive | Include | Note | SpankPlugin


class Config(msgspec.Struct, frozen=True):
    """A configuration file: its lines, in order."""

    lines: tuple[Line, ...] = ()

    def directives(self, key: str | None = None) -> Iterator[Directive]:
        """Go through the lines of settings, all or those of one kind, such as NodeName."""
        wanted = key.lower() if key else None
        for line in self.lines:
            if isinstance(line, Directive) and (wanted is None or line.key.lower() == wanted):
                yield line

    def get(self, key: str) -> str | None:
        """Find what a setting of the whole cluster is set to; of several, Slurm takes the last."""
        found = None
        for line in self.directives(key):
            found = line.value
        return found

    def includes(self) -> Iterator[str]:
        """The files that belong to this one."""
        return (line.path for line in self.lines if isinstance(line, Include))

    def render(self) -> str:
        return "".join(f"{line.render()}\n" for line in self.lines)


def parse(text: str, *, name: str = "slurm.conf") -> Config:
    """Read a file of `Key=value` lines; `name` is the file name for errors."""
    return Config(
        tuple(_parse_line(number, source, name=name) for number, source in _logical_lines(text, name=name))
    )


def parse_line(text: str) -> Directive:
    """Read one line of settings, such as the `NodeName=…` that a new node is made from."""
    if _CONTINUED.search(_without_comment(text)):
        raise ConfigError(f"{text[-60:]!r} ends with a backslash, which would join the next line")
    line = _parse_line(1, text, name="the line")
    if "\n" in text or not isinstance(line, Directive):
        raise ConfigError(f"{text[:60]!r} is not one line of settings", remedy="write Key=value Key=value …")
    return line


def _logical_lines(text: str, *, name: str) -> Iterator[tuple[int, str]]:
    """Join what a backslash continues; yields the number of the first line and the source without its end."""
    physical = text.split("\n")
    if physical[-1] == "":
        physical.pop()
    pending: list[str] = []
    begun = 1
    for number, line in enumerate(physical, start=1):
        pending.append(line)
        if _CONTINUED.search(_without_comment(line)):
            continue
        yield begun, "\n".join(pending)
        pending, begun = [], number + 1
    if pending:
        # Whatever is put behind this text would silently become part of its last line.
        raise ConfigError(f"{name}, line {begun}: the last line ends with a backslash, but no line follows")


def _parse_line(number: int, source: str, *, name: str) -> Line:
    text = "".join(_CONTINUED.sub("", _without_comment(line)) for line in source.split("\n"))
    if "\x00" in text:
        raise ConfigError(f"{name}, line {number}: contains a NUL byte")
    text = _ESCAPE.sub(r"\1", text)
    if not text.strip():
        return Note(source)
    if include := _INCLUDE.fullmatch(text.strip()):
        return Include(include[1], source)
    settings = []
    position = 0
    while match := _SETTING.match(text, position):
        value = match[4] if match[3] is None else match[3]
        settings.append((match[1] + match[2], value))
        position = match.end()
    if unread := text[position:].strip():
        raise ConfigError(
            f"{name}, line {number}: cannot read {unread[:60]!r}",
            remedy='write Key=value, with "quotes" around a value that has spaces',
        )
    return Directive(tuple(settings), source)


def _without_comment(line: str) -> str:
    match = _COMMENT.search(line)
    return line[: match.start(1)] if match else line


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key) or key.lower() == "include":
        raise ConfigError(f"{key[:40]!r} is not a valid setting name", remedy="use letters, digits, _ and .")
    return key


def _checked_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ConfigError(
            f"{path[:60]!r} is not a valid path or argument in a configuration file",
            remedy="use letters, digits and . / _ - + % @ : = ,",
        )
    return path


def _text(value: Value, *, key: str) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        if any("," in item for item in value):
            raise ConfigError(f"an entry of the list {key} contains a comma: {value!r}"[:200])
        value = ",".join(value)
    if not value:
        raise ConfigError(f"{key} has no value", remedy="leave the setting out instead")
    if _UNPRINTABLE.search(value):
        raise ConfigError(f"the value of {key} contains a line break or control character: {value[:60]!r}")
    for sign, meaning in {"#": "begins a comment", '"': "ends a quoted value", "\\": "is an escape"}.items():
        if sign in value:
            raise ConfigError(
                f"the value of {key} contains {sign}, which {meaning} in Slurm's files: {value[:60]!r}"
            )
    return value


def _refuse_repeated_keys(line: Directive) -> None:
    seen: set[str] = set()
    for key, _ in line.settings:
        if key.lower() in seen:
            raise ConfigError(f"the setting {key} occurs twice in one line, {line.render()[:80]!r}")
        seen.add(key.lower())


def _quoted(value: str) -> str:
    return f'"{value}"' if any(character.isspace() for character in value) else value

"""The selection of files to pack: pure tables over the paths of a listing."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from coordinator.code import ignore_rules, secret_files, selection
from coordinator.code.errors import FolderRefused
from coordinator.code.ignore_rules import IgnoreRules, PatternLine
from coordinator.code.selection import FolderListing


def rules(*patterns: str) -> IgnoreRules:
    return ignore_rules.parse([PatternLine(pattern, ".torchqignore") for pattern in patterns])


def select(paths: Sequence[str], *patterns: str, ignored: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    chosen = selection.select(FolderListing(paths, ignored), rules(*patterns))
    return list(chosen.paths), [str(each) for each in chosen.left_out]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git",
        "a/__pycache__/b.txt",
        "a.pyc",
        ".mypy_cache/x",
        ".pytest_cache/x",
        ".ruff_cache/x",
        "notebooks/.ipynb_checkpoints/a.ipynb",
        "web/node_modules/x.js",
        ".venv/lib/a.py",
        ".torchq/torchq/__init__.py",
        ".DS_Store",
    ],
)
def test_version_control_caches_and_environments_are_left_out_without_a_word(path: str) -> None:
    assert select([path, "train.py"]) == (["train.py"], [])
    assert select(["train.py"], "!*", ignored=[path]) == (["train.py"], [])


@pytest.mark.parametrize("marker", ["pyvenv.cfg", "conda-meta/history"])
def test_the_folder_of_an_environment_is_left_out_whatever_its_name(marker: str) -> None:
    paths = [f"tools/mine/{marker}", "tools/mine/bin/python", "tools/other.py", "tools/mine.py"]
    assert select(paths) == (["tools/mine.py", "tools/other.py"], [])


@pytest.mark.parametrize(
    "path",
    [
        ".env", "conf/.env.local", ".ENV", "server.pem", "tls/server.key", "id_rsa", "keys/id_ed25519", "id_deploy",
        "id_rsa.old",
        "kubeconfig", "kubeconfig.yaml", "prod.kubeconfig", ".kube/config", ".ssh/known_hosts", ".aws/credentials",
        ".netrc", ".pypirc", ".docker/config.json", "x/.docker/config.json", ".streamlit/secrets.toml",
        "service-account-prod.json", "client_secret_1.json",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_left_out_and_named_and_can_be_taken_back(path: str) -> None:
    assert select([path, "train.py"]) == (["train.py"], [f"{path} looks like a secret"])
    assert select([path, "train.py"], f"!{path}") == (sorted([path, "train.py"]), [])


@pytest.mark.parametrize(
    "path",
    [
        "id_map.json",
        "id_rsa.pub",
        "env.py",
        ".env.example",
        "pem.py",
        "config.yaml",
        "tokenizer.json",
        "secret_sauce.py",
        "keys.py",
    ],
)
def test_code_whose_name_is_like_that_of_a_secret_is_packed(path: str) -> None:
    assert select([path]) == ([path], [])


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (b"-----BEGIN RSA PRIVATE KEY-----\nMII", True),
        (b"\n-----BEGIN OPENSSH PRIVATE KEY-----\n", True),
        (b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n", True),
        (b"-----BEGIN CERTIFICATE-----\n", False),
        (b'KEY = "-----BEGIN RSA PRIVATE KEY-----"', False),
        (b"apiVersion: v1\nkind: Config\nclusters: []\ncurrent-context: a\n", True),
        (b"kind: Config\nlayers: 3\n", False),
        (b"kind: ConfigMap\ncurrent-context: a\n", False),
    ],
)
def test_a_private_key_or_a_kubeconfig_is_known_by_its_content(content: bytes, secret: bool) -> None:
    assert secret_files.in_content(content) is secret


def test_what_ignore_files_leave_out_is_named_by_its_topmost_folder() -> None:
    paths = ["train.py", "runs/1/log", "runs/2/log", "notes.md", "big.bin"]
    assert select(paths, "runs/", "*.bin", ignored=["data/", ".env"]) == (
        ["notes.md", "train.py"],
        [".env looks like a secret", "big.bin by .torchqignore", "data/ by .gitignore", "runs/ by .torchqignore"],
    )


def test_a_later_pattern_takes_back_what_an_earlier_one_or_git_leaves_out() -> None:
    chosen = selection.select(
        FolderListing(["a.bin", "b.bin"], ["gen_pb2.py", "data/"]), rules("*.bin", "!b.bin", "!*_pb2.py")
    )
    assert list(chosen.paths) == ["b.bin", "gen_pb2.py"]
    assert chosen.taken_back == {"b.bin", "gen_pb2.py"}


@pytest.mark.parametrize("pattern", ["!", "\\", "foo\\"])
def test_a_line_that_is_no_pattern_is_refused_with_its_file(pattern: str) -> None:
    with pytest.raises(FolderRefused, match=r"\.torchqignore: .* is not a pattern"):
        rules("*.bin", pattern)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a*a*a*a*a*ab", "a" * 120),
        ("a*" * 1_000 + "b", "a" * 255),
        ("*?" * 100 + "b", "a" * 255),
        ("**/" + "a/**/" * 30 + "b", "a/" * 1_500 + "c"),
        ("**/*a*a*a*a/**/*a*a*a*ab", ("a" * 200 + "/") * 15),
    ],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    assert rules(pattern).verdict(path) is None  # else the test is stopped


def test_a_pattern_that_is_longer_than_any_path_is_refused_with_its_beginning() -> None:
    with pytest.raises(FolderRefused, match=r"\.torchqignore: 'a{100}' is not a pattern"):
        rules("a" * 5_000)


@pytest.mark.parametrize(("pattern", "path"), [("a[!b]c", "a/c"), ("a[.-0]c", "a/c"), ("*[!a]b/", "a/b/c")])
def test_brackets_match_no_slash(pattern: str, path: str) -> None:
    assert rules(pattern).verdict(path) is None


def test_a_line_end_in_a_name_leads_around_no_pattern() -> None:
    assert select(["a\nb/c.bin", "a.py"], "*.bin") == (["a.py"], ["a b/c.bin by .torchqignore"])


PARTS = st.text(st.sampled_from("ab*?"), max_size=5) | st.sampled_from(["**", "[ab]*", "*[]a]b", "\\**"])
PATTERNS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "!", "/"]),
    st.lists(PARTS, min_size=1, max_size=5).map("/".join),
    st.sampled_from(["", "/", "/**"]),
)
FILES = st.lists(st.text("aab*", min_size=1, max_size=6), min_size=1, max_size=6).map("/".join)


@given(PATTERNS.filter(str.strip), FILES, st.sampled_from(["", "/"]))
def test_the_bound_on_time_changes_no_verdict(pattern: str, file: str, end: str) -> None:
    try:
        found = GitIgnoreSpec.from_lines([pattern], backend="simple").check_file(file + end).include
    except ValueError:
        return
    verdict = rules(pattern).verdict(file + end)
    assert (verdict and verdict.ignored) == found


NAMES = st.text("ab._", min_size=1, max_size=3).filter(lambda name: name.strip("."))
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=12)


@given(PATHS, st.permutations(range(12)))
def test_the_order_of_the_listing_does_not_matter(paths: list[str], order: list[int]) -> None:
    shuffled = [paths[index] for index in order if index < len(paths)]
    assert select(paths, "a/", "!b") == select(shuffled, "a/", "!b")

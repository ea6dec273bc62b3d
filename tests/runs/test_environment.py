"""What a run notes of the machine and the code."""

import subprocess

from rebafl.runs.environment import machine


def test_only_changed_code_marks_a_commit(tmp_path, monkeypatch):
    """Results that are run again, or notes beside the code, do not make a number's origin doubtful."""

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True)

    monkeypatch.setattr("rebafl.runs.environment.SOURCE", tmp_path)
    assert machine()["commit"] == "", "an installed package"
    for name in ("src/code.py", "results/cell.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    head = git("rev-parse", "HEAD").stdout.strip()
    assert machine()["commit"] == head
    (tmp_path / "results" / "cell.json").write_text("2")
    assert machine()["commit"] == head
    (tmp_path / "src" / "code.py").write_text("2")
    assert machine()["commit"] == f"{head}-dirty"

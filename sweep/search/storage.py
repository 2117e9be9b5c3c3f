"""Where trials are kept: an Optuna database with one writer, from which a later call goes on.

The search itself runs in memory, and each finished batch is added to the database: asking a database for every trial
costs more than all else, and a trial that was asked for but not scored is worth nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from kvwall.spaces.errors import InputError
from kvwall.sweep.store.lock import FolderLock
from kvwall.sweep.store.spec_file import differences

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

_SQLITE = "sqlite:///"
_STUDY, _SPEC_HASH, _SPEC = "kvwall_study", "kvwall_spec_hash", "kvwall_spec"
_MOST_DIFFERENCES = 5


class TrialStore:
    """An open database. Close it to let the next writer in."""

    def __init__(self, storage: str, study: Study) -> None:
        """Open or make it. `storage`: an SQLAlchemy URL or the path of an SQLite file.

        Raises InputError where it cannot be used, or holds trials of another version of the study.
        """
        self.url = storage if "://" in storage else f"{_SQLITE}{storage}"
        self._study = study
        self._lock = _locked(self.url)
        try:
            self._storage = _connected(self.url)
            self._refuse_changed()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go; harmless when done already."""
        if hasattr(self, "_storage"):
            self._storage.remove_session()
            self._storage.engine.dispose()
        if self._lock:
            self._lock.release()

    def _refuse_changed(self) -> None:
        for summary in optuna.get_all_study_summaries(storage=self._storage):
            kept = summary.user_attrs
            if kept.get(_STUDY) != self._study.name or kept.get(_SPEC_HASH) == self._study.spec_hash:
                continue
            changed = list(differences(kept.get(_SPEC, {}), self._study.spec()))
            more = " ..." if len(changed) > _MOST_DIFFERENCES else ""
            raise InputError(
                f'{self.url} holds trials of study "{self._study.name}" as it was before it changed '
                f"({'; '.join(changed[:_MOST_DIFFERENCES])}{more}): choose another folder with --out, another database "
                "with --storage, or delete it"
            )

    def kept(self, name: str, directions: Sequence[Literal["minimize", "maximize"]]) -> KeptTrials:
        """The trials kept under a name, none if it is new."""
        kept = optuna.create_study(
            study_name=name, storage=self._storage, directions=list(directions), load_if_exists=True
        )
        if _SPEC_HASH not in kept.user_attrs:
            kept.set_user_attr(_STUDY, self._study.name)
            kept.set_user_attr(_SPEC, self._study.spec())
            kept.set_user_attr(_SPEC_HASH, self._study.spec_hash)
        return KeptTrials(kept, self._storage)


class KeptTrials:
    """Trials of one search in a database."""

    def __init__(self, kept: optuna.Study, storage: RDBStorage) -> None:
        self._kept = kept
        self._storage = storage

    def finished(self) -> list[FrozenTrial]:
        """Scored trials, in order."""
        return self._kept.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def abandoned(self) -> list[dict[str, Any]]:
        """Parameters of trials that a dead run left open, or a user queued; they are marked as failed."""
        open_trials = self._kept.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
        for trial in open_trials:
            self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        return [trial.params or trial.system_attrs.get("fixed_params", {}) for trial in open_trials]

    def add(self, trials: Sequence[FrozenTrial]) -> None:
        """Keep scored trials, each in one transaction. Raises InputError where the database does not take them."""
        try:
            self._kept.add_trials(trials)
        except optuna.exceptions.StorageInternalError as fault:
            why = _first_line(fault.__cause__ or fault)
            raise InputError(f"trials could not be kept ({why}): free some space, or use --storage") from fault


def _locked(url: str) -> FolderLock | None:
    """One writer per SQLite file; a database server is left to its users."""
    if not url.startswith(_SQLITE):
        return None
    folder = Path(url.removeprefix(_SQLITE)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InputError(f"{folder} cannot be made ({fault.strerror}): choose another folder with --out") from fault
    return FolderLock(folder)


def _connected(url: str) -> RDBStorage:
    own = {"connect_args": {"factory": _WriteAhead}} if url.startswith(_SQLITE) else {}
    try:
        return RDBStorage(url, engine_kwargs=own)
    except Exception as fault:  # every database driver has errors of its own
        raise InputError(
            f"{url} cannot be used to keep trials ({_first_line(fault)}): give a path, or a URL such as "
            "sqlite:///trials.db or postgresql+psycopg://user@host/name"
        ) from fault


class _WriteAhead(sqlite3.Connection):
    """A third of the time per trial; a killed process loses nothing, a power cut at most the last trials."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip() or type(fault).__name__).splitlines()[0]

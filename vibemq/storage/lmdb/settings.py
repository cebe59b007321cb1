"""Options of the lmdb provider; the defaults suit a small machine."""

from pydantic import BaseModel, ConfigDict, Field


class LmdbSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    segment_bytes: int = Field(default=16 << 20, ge=64 << 10, le=1 << 30)
    """Size of a journal segment."""
    buffer_bytes: int = Field(default=8 << 20, ge=0)
    """Rows kept in memory until a checkpoint has them; older ones are read back from the journal."""
    checkpoint_lag_bytes: int = Field(default=64 << 20, ge=0)
    """Journal that is left alone: messages settled while still in it never reach the store. Bounds recovery time."""
    checkpoint_ms: int = Field(default=10_000, ge=100)
    """The journal is checkpointed at least this often while anything is in it."""
    checkpointer_silence_ms: int = Field(default=20_000, ge=100)
    """A checkpointer that has work and reports no progress for so long is killed, and started again."""
    journal_bytes_max: int = Field(default=4 << 30, ge=1 << 20)
    """Journal that is not checkpointed; beyond it new messages are refused until the checkpointer has come along."""
    ballast_bytes: int = Field(default=64 << 20, ge=0)
    """Disk space kept so that a full disk can be drained."""
    allow_remote: bool = False
    """Accept a data directory on a remote file system, where flushes, locks and maps cannot be trusted."""

"""Options of the sqlite provider."""

from pydantic import BaseModel, ConfigDict, Field


class SqliteSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    cache_bytes: int = Field(default=16 << 20, ge=1 << 20)
    """SQLite's page cache."""
    wal_bytes: int = Field(default=16 << 20, ge=1 << 16)
    """The write-ahead log is folded into the database once it is longer."""
    ballast_bytes: int = Field(default=16 << 20, ge=0)
    """Disk space kept so that a full disk can be drained."""
    allow_remote: bool = False
    """Accept a data directory on a remote file system, where flushes and locks cannot be trusted."""

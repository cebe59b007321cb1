"""Operations of users and operators beyond publishing and consuming."""

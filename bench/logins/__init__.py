"""What a flood of wrong logins costs those who are logged in already."""

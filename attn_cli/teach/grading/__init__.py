"""An answer compared with the right one."""

"""Jobs begin, change and end, count what their steps do, and notice when their messages die again."""

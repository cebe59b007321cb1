"""What every benchmark needs: load, clocks, processes and their end, disks, tables and plots."""

//! What the guide says about Citus, on the cluster that `scripts/citus` starts. Each trial prints a
//! row of the script's table.

mod claims;
mod cluster;
mod commits;
mod jobs;
mod jobs_at_rows;
mod leases;
mod locks;
mod locks_at_rows;

//! The command, run as cargo runs it.
#![expect(
    clippy::unwrap_used,
    reason = "the functions that tests share fail the test too"
)]

mod action;
mod application;
mod archive;
mod bad_input;
mod build;
mod check;
mod check_advice;
mod check_at_lines;
mod claim_command;
mod claims;
mod command;
mod dashboard;
mod derived_halves;
mod diagnosis;
mod doctor;
mod doctor_citus;
mod doctor_engines;
mod doctor_server;
mod document;
mod dump;
mod formats;
mod graph;
mod guard;
mod guard_check;
mod guard_partitions;
mod guards;
mod json_members;
mod json_page;
mod key;
mod key_find;
mod lease_command;
mod leases;
mod live_view;
mod locks;
mod locks_address;
mod locks_age;
mod locks_causes;
mod locks_end;
mod locks_json;
mod locks_leases;
mod locks_many;
mod locks_pooler;
mod locks_tls;
mod locks_watch;
mod log;
mod log_follow;
mod log_input;
mod log_language;
mod log_records;
mod log_waits;
mod logging_server;
mod migration;
mod programs;
mod records;
mod registry;
mod release;
mod report;
mod report_browser;
mod runbook;
mod screens;
mod services;
mod situations;

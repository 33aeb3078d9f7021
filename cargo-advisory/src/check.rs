//! `cargo advisory check`: collisions, and differences from a registry, an earlier release or a
//! database.

mod advice;
pub(crate) mod claim_changes;
pub(crate) mod collisions;
mod guards;
pub(crate) mod key_changes;
pub(crate) mod registry;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::{CODES, Output};
use crate::database::{self, Queries};
use crate::failure::Result;
use crate::finding::{github, sarif};
use crate::selection::Artifacts;
use crate::source_root::SourceRoot;
use crate::{finding, json};

/// Fails if locks can collide, or differ from a document, a release or a database
///
/// Builds the selection, or reads the given artifacts, and compares each lock site with each other
/// one across all crates: two sites must be one lock on purpose, or never share a key.
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    /// The output format; `sarif` and `github` place each finding at its line
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
    /// The committed document, JSON or Markdown: fails if it is out of date (line numbers are not
    /// compared)
    #[arg(long, value_name = "FILE")]
    registry: Vec<PathBuf>,
    /// The inventory (JSON) of another service on the same database: fails if locks can collide
    /// with its locks
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// The inventory (JSON) of an earlier release: fails if the two cannot run side by side,
    /// because a lock's key has changed, or a claim's columns
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The name of a lock, the path of its function, or the path of a claim's row that changes on
    /// purpose
    #[arg(long, value_name = "NAME", requires = "against")]
    allow_key_change: Vec<String>,
    /// A database: fails if a guarded table has no trigger for its lock, or one that computes
    /// another key; advises a constraint that could enforce the rule, or an index that is missing
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// For how many keys the registry document gives the odds of a collision
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    keys: u64,
    #[command(flatten)]
    artifacts: Artifacts,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    /// SARIF 2.1.0, which code hosts and editors read
    Sarif,
    /// Workflow commands of GitHub Actions, which become annotations of a pull request
    Github,
}

impl Arguments {
    /// Returns `true` if nothing was found but advice.
    pub(crate) fn run(&self) -> Result<bool> {
        let inventory = self.artifacts.inventory(true)?;
        let mut findings = collisions::find(&inventory, &self.with)?;
        if let Some(file) = &self.against {
            let release = key_changes::Release {
                old: &json::read_file(file)?,
                from: file,
                allowed: &self.allow_key_change,
            };
            findings.extend(key_changes::find(&inventory, &release));
            findings.extend(claim_changes::find(&inventory, &release));
        }
        for file in &self.registry {
            findings.extend(registry::compare(&inventory, file, self.keys)?);
        }
        if let Some(address) = &self.database_url {
            findings.extend(database::with(address, async |queries: &mut Queries| {
                let mut found = guards::find(&inventory, &queries.client).await?;
                found.extend(advice::find(&inventory, &queries.client).await?);
                Ok(found)
            })?);
        }
        let source_root = || SourceRoot::find(self.artifacts.manifest_path());
        let text = match self.format {
            Format::Text => finding::text(&findings, &inventory.summary()),
            Format::Json => finding::json(&findings),
            Format::Sarif => sarif::write(&findings, &source_root()),
            Format::Github => github::write(&findings, &inventory.summary(), &source_root()),
        };
        self.output.write(&text)?;
        Ok(finding::is_ok(&findings))
    }
}

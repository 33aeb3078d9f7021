//! Prints a completion script: `cargo advisory completions`.

use clap::Args;
use clap_complete::Shell;

use crate::cli::{NAME, Output};
use crate::failure::Result;

/// Prints a completion script for a shell
///
/// The script completes `cargo-advisory`. In zsh, saved as `_cargo-advisory` on the `fpath`, it
/// also completes `cargo advisory`.
#[derive(Args)]
pub(super) struct Arguments {
    shell: Shell,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<bool> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::advisory(), NAME, &mut script);
        self.output.write(&String::from_utf8_lossy(&script))?;
        Ok(true)
    }
}

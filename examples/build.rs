//! Writes the Rust code of the guide's pages into files, which `tests/it/guide` includes and runs.
//!
//! `PAGE-N.rs` is the page's Nth block of code, without hidden lines and imports. A block of
//! statements is in braces.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../advisory-runtime/docs");
    let out = env::var_os("OUT_DIR").ok_or("cargo sets `OUT_DIR`")?;
    println!("cargo::rerun-if-changed={}", pages.display());
    for entry in fs::read_dir(pages)? {
        let page = entry?.path();
        let name = page.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&page)?;
        let blocks = text.split("\n```").skip(1).step_by(2);
        let blocks = blocks.filter_map(|block| block.split_once('\n'));
        let rust = blocks.filter(|(language, _)| ["", "no_run"].contains(language));
        for (number, (_, block)) in (1..).zip(rust) {
            let file = Path::new(&out).join(format!("{name}-{number}.rs"));
            fs::write(file, code(block))?;
        }
    }
    Ok(())
}

fn code(block: &str) -> String {
    let mut code = String::new();
    let mut is_import = false;
    for line in block
        .lines()
        .filter(|line| !line.trim_start().starts_with("# "))
    {
        is_import |= line.starts_with("use ");
        if !is_import {
            code += line;
            code.push('\n');
        }
        is_import &= !line.ends_with(';');
    }
    let statements = ["let ", "assert", "advisory_runtime::"];
    let is_statement = |line: &str| statements.iter().any(|begin| line.starts_with(begin));
    if code.lines().any(is_statement) {
        code = format!("{{\n{code}}}\n");
    }
    code
}

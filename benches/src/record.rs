//! The figures of a run, as a file; with `--record` in the repository, from which the page is
//! written.

use crate::flags::Flags;
use crate::machine::{self, Others, root};
use crate::publish;
use crate::server;
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Above this share of the time, in per cent, ratios of times depend too much on other load.
const BUSY: u64 = 10;

/// Refuses to record times on a busy machine.
pub(crate) fn quiet(flags: &Flags) -> Result<Option<Others>, Box<dyn Error>> {
    if flags.record {
        let before = Others::now();
        #[expect(clippy::disallowed_methods, reason = "the time is the point")]
        sleep(Duration::from_secs(2));
        refuse(before.as_ref().and_then(Others::since))?;
    }
    Ok(Others::now())
}

fn refuse(busy: Option<u64>) -> Result<(), String> {
    match busy {
        Some(busy @ BUSY..) => Err(format!(
            "the other processors are busy for {busy} % of the time: record when the machine is quiet"
        )),
        _ => Ok(()),
    }
}

/// Writes the files of `--json` and `--record`, with the share of the time that others used, in per
/// cent.
pub(crate) async fn keep(
    flags: &Flags,
    kind: &str,
    mut figures: Value,
    busy: Option<u64>,
) -> Result<(), Box<dyn Error>> {
    if flags.json.is_none() && !flags.record {
        return Ok(());
    }
    let mut run = machine::describe();
    run["others_busy"] = busy.into();
    run["server"] = server::version().await?.into();
    let date = run["date"].as_str().unwrap_or("undated").to_owned();
    figures["run"] = run;
    let text = format!("{figures:#}\n");
    if let Some(file) = &flags.json {
        fs::write(file, &text)?;
    }
    if flags.record {
        refuse(busy)?;
        let folder = root().join("benches/runs");
        fs::create_dir_all(&folder)?;
        let name = date.replace(' ', "T").replace(':', "");
        fs::write(folder.join(format!("{name}-{kind}.json")), text)?;
        publish::publish()?;
    }
    Ok(())
}

//! Checks the model, or prints how a bug breaks it.

use advisory_model::{Bug, Leases, check, find, story};
use lexopt::{Arg, ValueExt as _};
use std::process::ExitCode;

const HELP: &str = "\
Checks a model of leases in every order of its steps.

Usage: cargo run --release -p advisory-model -- [--bug NAME | --bug all | --bounds PROCESSES CALLS FAULTS]

Without `--bug`, it visits every state of two and of three processes.
With it, it prints the shortest story in which the bug breaks a property.";

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut bugs = None;
    let mut models = vec![Leases::two(), Leases::three()];
    let mut flags = lexopt::Parser::from_env();
    while let Some(flag) = flags.next()? {
        match flag {
            Arg::Long("bug") => {
                let name = flags.value()?;
                let name = name.to_string_lossy();
                bugs = Some(match &*name {
                    "all" => Bug::ALL.to_vec(),
                    name => vec![name.parse()?],
                });
            }
            Arg::Long("bounds") => {
                let mut bounds = || flags.value()?.parse::<u8>();
                let (processes, calls, faults) = (bounds()?.into(), bounds()?, bounds()?);
                models = vec![Leases {
                    processes,
                    calls,
                    faults,
                    ..Leases::two()
                }];
            }
            Arg::Long("help") | Arg::Short('h') => {
                print(HELP);
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let is_good = bugs.map_or_else(|| check_all(&models), |bugs| print_stories(&bugs));
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn check_all(models: &[Leases]) -> bool {
    let mut is_good = true;
    for model in models {
        let checked = check(model);
        print(&format!(
            "{} processes, {} calls, {} faults: {} states, at most {} steps deep",
            model.processes, model.calls, model.faults, checked.states, checked.depth
        ));
        for name in &checked.impossible {
            print(&format!("never: {name}"));
        }
        for (property, actions) in &checked.broken {
            print(&format!(
                "broken: {}\n{}",
                property.name(),
                story(model, actions)
            ));
        }
        is_good &= checked.broken.is_empty() && checked.impossible.is_empty();
    }
    is_good
}

fn print_stories(bugs: &[Bug]) -> bool {
    let mut is_good = true;
    for bug in bugs {
        print(&format!("{}: {}", bug.name(), bug.description()));
        if let Some((model, actions)) = find(*bug) {
            print(&format!(
                "{}\nThis breaks: {}.\n",
                story(&model, &actions),
                bug.property().name()
            ));
        } else {
            is_good = false;
            print("not found\n");
        }
    }
    is_good
}

#[allow(clippy::print_stdout, reason = "a command prints")]
fn print(text: &str) {
    println!("{text}");
}

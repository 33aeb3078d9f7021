//! Which database? The flag, else `DATABASE_URL`, else that of a `.env`, as Diesel's own command reads them.

use std::env;

use crate::failure::Failure;

const VARIABLE: &str = "DATABASE_URL";

/// Finds the database's address.
pub(crate) fn find(flag: Option<&String>) -> Result<String, Failure> {
    if let Some(url) = flag {
        return Ok(url.clone());
    }
    if let Ok(url) = env::var(VARIABLE) {
        return Ok(url);
    }
    // Looked for in this directory and those above it, and the environment stays as it is.
    match dotenvy::dotenv_iter() {
        Ok(lines) => {
            for line in lines {
                let (name, value) = line.map_err(|error| unreadable(&error))?;
                if name == VARIABLE {
                    return Ok(value);
                }
            }
        }
        Err(error) if error.not_found() => {}
        Err(error) => return Err(unreadable(&error)),
    }
    let why = "which database? Give `--database-url`, or `DATABASE_URL` in the environment or in a `.env`";
    Err(Failure::Input(why.to_owned()))
}

/// Without the line itself, which may hold a password.
fn unreadable(error: &dotenvy::Error) -> Failure {
    let why = match error {
        dotenvy::Error::LineParse(_, at) => format!("a line cannot be read, at its character {at}"),
        other => other.to_string(),
    };
    Failure::Input(format!("`.env`: {why}"))
}

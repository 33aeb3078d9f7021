//! The database's address: from the flag, or else from `DATABASE_URL`, or else from a `.env` file,
//! as in Diesel's own command.

use std::env;

use clap::Args;

use super::options::Options;
use crate::failure::{Failure, Result, bail};

const VARIABLE: &str = "DATABASE_URL";

// The database to look at.
#[derive(Args)]
pub(crate) struct DatabaseUrl {
    #[arg(
        long,
        value_name = "URL",
        global = true,
        help = "The database [default: `DATABASE_URL` from the environment or a `.env`]"
    )]
    database_url: Option<String>,
}

impl DatabaseUrl {
    pub(crate) fn find(&self) -> Result<String> {
        find(self.database_url.as_ref())
    }
}

pub(crate) fn find(flag: Option<&String>) -> Result<String> {
    // A script may set the variable to an empty text.
    let is_one = |url: &String| !url.trim().is_empty();
    let set = [flag.cloned(), env::var(VARIABLE).ok()];
    if let Some(url) = set.into_iter().flatten().find(is_one) {
        return Ok(url);
    }
    // Searches this directory and its parents, and does not change the environment.
    match dotenvy::dotenv_iter() {
        Ok(lines) => {
            for line in lines {
                let (name, value) = line.map_err(|error| unreadable(&error))?;
                if name == VARIABLE && is_one(&value) {
                    return Ok(value);
                }
            }
        }
        Err(error) if error.not_found() => {}
        Err(error) => return Err(unreadable(&error)),
    }
    bail!(
        "no database: use `--database-url`, or set `DATABASE_URL` in the environment or in a `.env`"
    )
}

/// The failure of reading a `.env`, without the invalid line, which may contain a password.
fn unreadable(error: &dotenvy::Error) -> Failure {
    let why = match error {
        dotenvy::Error::LineParse(_, at) => format!("a line cannot be read, at character {at}"),
        other => other.to_string(),
    };
    Failure::Input(format!("`.env`: {why}"))
}

/// Returns `true` if the address is a URL, and `false` if it is a key-value string.
pub(crate) fn is_url(address: &str) -> bool {
    let schemes = ["postgres://", "postgresql://"];
    let address = address.trim_start();
    schemes.iter().any(|scheme| address.starts_with(scheme))
}

/// Takes the options that tokio-postgres does not know out of an address.
pub(super) fn split(address: &str) -> (String, Options) {
    // With the space, the address would not be split as a URL, and the rest would then be read as
    // one that says nothing of TLS.
    let address = address.trim_start();
    if is_url(address) {
        split_url(address)
    } else {
        split_words(address)
    }
}

fn split_url(url: &str) -> (String, Options) {
    let mut options = Options::default();
    let is_query = |text: &str| {
        let rest = text.split_once("://").map(|(_, rest)| rest);
        let path = rest.and_then(|rest| rest.split_once('/'));
        path.is_some_and(|(_, path)| path.contains('?'))
    };
    // A `?` in front of the `@` is part of the password, unless the `@` is part of the query.
    let (credentials, rest) = match url.split_once('@') {
        Some((credentials, rest)) if !is_query(credentials) => (format!("{credentials}@"), rest),
        _ => (String::new(), url),
    };
    let Some((place, query)) = rest.split_once('?') else {
        return (url.to_owned(), options);
    };
    let is_other = |setting: &&str| {
        let pair = setting.split_once('=');
        !pair.is_some_and(|(name, value)| options.set(&decoded(name), &decoded(value)))
    };
    let query: Vec<&str> = query.split('&').filter(is_other).collect();
    // tokio-postgres looks for the end of the password in the query too.
    let query = query.join("&").replace('@', "%40");
    (format!("{credentials}{place}?{query}"), options)
}

fn split_words(words: &str) -> (String, Options) {
    let mut options = Options::default();
    let mut others = Vec::new();
    let mut words = words.trim_start();
    while let Some((name, value, rest)) = setting(words) {
        if !options.set(name, &value) {
            others.extend(words.strip_suffix(rest));
        }
        words = rest.trim_start();
    }
    if !words.is_empty() {
        // tokio-postgres says why this is not a setting.
        others.push(words);
    }
    (others.join(" "), options)
}

/// The name and the value of the first setting of a key-value string, and the text after it;
/// `None` if the text does not start with one.
fn setting(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_at(text.find(|c: char| c.is_whitespace() || c == '=')?);
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quoted = rest.strip_prefix('\'');
    let mut letters = quoted.unwrap_or(rest).chars();
    let mut value = String::new();
    loop {
        let rest = letters.as_str();
        match letters.next() {
            Some('\\') => value.extend(letters.next()),
            Some('\'') if quoted.is_some() => return Some((name, value, letters.as_str())),
            Some(letter) if quoted.is_none() && letter.is_whitespace() => {
                return Some((name, value, rest));
            }
            Some(letter) => value.push(letter),
            None => return quoted.is_none().then_some((name, value, rest)),
        }
    }
}

/// Decodes a name or a value of a URL: `%2F` is `/`.
fn decoded(value: &str) -> String {
    let bytes = percent_encoding::percent_decode_str(value);
    bytes.decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use advisory_tests::fuzz;
    use tokio_postgres::Config;
    use tokio_postgres::config::SslMode;

    use super::super::options::Options;
    use super::{is_url, split};

    /// tokio-postgres reads the remaining address like the whole one.
    #[test]
    fn any_address_keeps_its_meaning() {
        fuzz("tests/corpus/address", |input| {
            let Ok(address) = std::str::from_utf8(input) else {
                return;
            };
            let (rest, options) = split(address);
            // A URL with settings in front of it is not a valid address.
            if is_url(&rest) != is_url(address) {
                return;
            }
            assert_eq!(split(&rest), (rest.clone(), Options::default()), "{rest}");
            let Ok(mut whole) = address.parse::<Config>() else {
                return;
            };
            // It takes an `@` of the query for the end of a password.
            if address.find('?') < address.rfind('@') && address.contains('?') {
                return;
            }
            whole.ssl_mode(SslMode::Prefer);
            match rest.parse::<Config>() {
                Ok(rest) => assert_eq!(rest, whole, "{address}: {options:?}"),
                Err(error) => panic!("{address}: {rest}: {error}"),
            }
        });
    }
}

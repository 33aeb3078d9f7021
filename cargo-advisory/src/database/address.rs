//! The database's address: from the flag, or else from `DATABASE_URL`, or else from a `.env` file,
//! as in Diesel's own command.

use std::env;

use clap::Args;

use super::options::Options;
use crate::failure::{Failure, Result, bail};

const VARIABLE: &str = "DATABASE_URL";

// The database to look at.
#[derive(Args, Default)]
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

    /// The address, the rest of it, `sslmode` and `sslrootcert`.
    const CASES: &str = r"
postgres://h/d | postgres://h/d | |
postgres://h/d?application_name=x | postgres://h/d?application_name=x | |
postgres://h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fmy%20ca.pem | postgres://h/d?connect_timeout=3 | verify-full | /etc/my ca.pem
postgres://h/d?sslmode=require | postgres://h/d? | require |
host=h sslmode='disable' user=me | host=h user=me | disable |
postgres://me:a?b@h/d?sslmode=require&application_name=a@b | postgres://me:a?b@h/d?application_name=a%40b | require |
postgresql://h/d?ssl%6Dode=require&user=me@h | postgresql://h/d?user=me%40h | require |
host=h sslmode = require sslrootcert='/my \'ca\'.pem'user=me | host=h user=me | require | /my 'ca'.pem
host=h password=a://b?c sslmode=r\equire | host=h password=a://b?c | require |
host=h password='a sslmode=require | host=h password='a sslmode=require | |
host=h password='a  b' | host=h password='a  b' | |
";

    #[test]
    fn options_of_tls_are_taken_out_of_any_form_of_address() {
        let cases = CASES.lines().filter(|line| !line.is_empty());
        let cases = cases.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let spaces = " host=h password=a\\  sslmode=require password=b\\ ";
        let spaces = vec![spaces, "host=h password=a\\  password=b\\ ", "require", ""];
        for case in cases.chain([spaces]) {
            let (rest, options) = split(case[0]);
            let tls = [options.tls.mode, options.tls.authorities];
            let [mode, authorities] = tls.map(Option::unwrap_or_default);
            assert_eq!([&rest, &mode, &authorities], [case[1], case[2], case[3]]);
        }
    }

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

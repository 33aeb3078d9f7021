//! The database's address: from the flag, else from `DATABASE_URL`, else from a `.env` file, as in Diesel's own command.

use std::env;

use super::tls::Tls;
use crate::failure::Failure;

const VARIABLE: &str = "DATABASE_URL";

/// Finds the database's address.
pub(crate) fn find(flag: Option<&String>) -> Result<String, Failure> {
    // A script may set the variable to an empty text.
    let is_one = |url: &String| !url.trim().is_empty();
    if let Some(url) = flag.cloned().filter(is_one) {
        return Ok(url);
    }
    if let Some(url) = env::var(VARIABLE).ok().filter(is_one) {
        return Ok(url);
    }
    // Searches this directory and those above it; does not change the environment.
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
    let why = "no database: use `--database-url`, or set `DATABASE_URL` in the environment or in a `.env`";
    Err(Failure::Input(why.to_owned()))
}

/// The failure of reading a `.env`, without the invalid line, which may contain a password.
fn unreadable(error: &dotenvy::Error) -> Failure {
    let why = match error {
        dotenvy::Error::LineParse(_, at) => format!("a line cannot be read, at character {at}"),
        other => other.to_string(),
    };
    Failure::Input(format!("`.env`: {why}"))
}

/// Takes the TLS settings out of an address: tokio-postgres does not know all those of libpq.
pub(crate) fn split(address: &str) -> (String, Tls) {
    let mut tls = Tls::default();
    let mut rest = Vec::new();
    let (before, settings, separator) = match address.split_once("://") {
        Some(_) => match address.split_once('?') {
            Some((before, query)) => (format!("{before}?"), query.split('&').collect(), "&"),
            None => return (address.to_owned(), tls),
        },
        None => (String::new(), words(address), " "),
    };
    let settings: Vec<&str> = settings;
    for setting in settings {
        let value = |value: &str| match separator {
            "&" => decoded(value),
            _ => value.trim_matches('\'').to_owned(),
        };
        match setting.split_once('=') {
            Some(("sslmode", mode)) => tls.mode = Some(value(mode)),
            Some(("sslrootcert", file)) => tls.authorities = Some(value(file)),
            _ => rest.push(setting),
        }
    }
    (format!("{before}{}", rest.join(separator)), tls)
}

/// The settings of a key-value string: a value in quotes can contain spaces.
fn words(address: &str) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let words = address.split(|letter: char| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        match letter {
            '\\' => is_escaped = true,
            '\'' => is_quoted = !is_quoted,
            _ => return letter.is_whitespace() && !is_quoted,
        }
        false
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// Decodes a value of a URL: `%2F` is `/`.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((plain, behind)) = rest.split_once('%') {
        bytes.extend(plain.bytes());
        let byte = behind.get(..2).map(|digits| u8::from_str_radix(digits, 16));
        if let Some(Ok(byte)) = byte {
            bytes.push(byte);
            rest = &behind[2..];
        } else {
            bytes.push(b'%');
            rest = behind;
        }
    }
    bytes.extend(rest.bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn what_is_said_of_tls_is_taken_out_of_any_form_of_address() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", None, None),
            (
                "postgres://h/d?application_name=x",
                "postgres://h/d?application_name=x",
                None,
                None,
            ),
            (
                "postgres://h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fmy%20ca.pem",
                "postgres://h/d?connect_timeout=3",
                Some("verify-full"),
                Some("/etc/my ca.pem"),
            ),
            (
                "postgres://h/d?sslmode=require",
                "postgres://h/d?",
                Some("require"),
                None,
            ),
            (
                "host=h sslmode='disable' user=me",
                "host=h user=me",
                Some("disable"),
                None,
            ),
            (
                "host=h password='a  b'",
                "host=h password='a  b'",
                None,
                None,
            ),
        ];
        for (address, rest, mode, authorities) in cases {
            let (split, tls) = split(address);
            assert_eq!(split, rest);
            assert_eq!(
                (tls.mode.as_deref(), tls.authorities.as_deref()),
                (mode, authorities)
            );
        }
    }
}

//! The options of an address that tokio-postgres does not know: those of libpq, and those that
//! pools and other libraries put into a URL.
//!
//! Each is applied, ignored because it has no effect on a program that opens one connection, or
//! refused by its name.

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use super::tls::Tls;
use crate::text::joined;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) tls: Tls,
    settings: Vec<(&'static str, String)>,
    keepalives_retries: Option<u32>,
    server: Option<TargetSessionAttrs>,
    /// The message about the first option that is refused.
    pub(super) refusal: Option<String>,
}

/// The settings of a session that other libraries accept in a URL.
const SETTINGS: &str = "\
    search_path timezone lock_timeout statement_timeout transaction_timeout idle_session_timeout \
    idle_in_transaction_session_timeout default_transaction_isolation";

/// The options of pools, of caches of statements and of other libraries' own timeouts, in lower
/// case.
const WITHOUT_EFFECT: &str = "\
    applicationname binary_parameters connection_limit default_query_exec_mode \
    description_cache_capacity fallback_application_name gssdelegation gsslib krbsrvname \
    logintimeout max_overflow max_pool_size maxpoolsize minpoolsize pgbouncer pool \
    pool_max_conn_idle_time pool_max_conn_lifetime pool_max_conn_lifetime_jitter pool_max_conns \
    pool_min_conns pool_size pool_timeout pooling preferquerymode prepared_statement_cache_queries \
    prepared_statements preparethreshold socket_timeout sockettimeout sslcompression \
    statement-cache-capacity statement_cache_capacity";

/// The options that are refused: their names, the values that have no effect, and what to write
/// instead.
const REFUSED: &str = "\
client_encoding | UTF8 utf8 UTF-8 utf-8 auto | leave it out, the command speaks UTF-8
charset characterEncoding | UTF8 utf8 UTF-8 utf-8 | leave it out, the command speaks UTF-8
gssencmode | disable prefer | there is no GSSAPI: write `sslmode=require`
max_protocol_version | 3.0 3.2 latest | leave it out, the command speaks version 3.0 of the protocol
min_protocol_version | 3.0 | leave it out, the command speaks version 3.0 of the protocol
oauth_client_id oauth_client_secret oauth_issuer oauth_scope |  | there is no OAuth: name a role with a password
passfile |  | no such file is read: set `PGPASSWORD`
replication | false off no 0 | leave it out, the command needs a session that runs queries
require_auth |  | leave it out, or write `channel_binding=require`, which only SCRAM can do
requirepeer |  | leave it out: who runs the server is not checked
requiressl | 0 | write `sslmode=require`
scram_client_key scram_server_key |  | write the password, or set `PGPASSWORD`
service servicefile |  | no such file is read: write the service's host, port, database and user into the URL
ssl |  | write `sslmode=require`, or `sslmode=verify-full`
sslaccept | accept_invalid_certs | write `sslmode=verify-full`
sslcert sslkey sslpassword sslidentity |  | there are no client certificates: name a role with a password
sslcertmode | disable allow | there are no client certificates: name a role with a password
sslcrl sslcrldir |  | leave it out: revoked certificates are not known
sslkeylogfile |  | leave it out: no keys are logged
sslsni | 1 | leave it out: the name of the host is always sent
ssl_min_protocol_version | TLSv1 TLSv1.1 TLSv1.2 | leave it out, the command speaks TLS 1.2 and 1.3
ssl_max_protocol_version | TLSv1.3 | leave it out, the command speaks TLS 1.2 and 1.3";

impl Options {
    /// Takes an option; returns `false` if tokio-postgres reads it, or refuses it as unknown.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        if self.tls.set(name, value) {
            return true;
        }
        let (value, lower) = (value.trim(), name.to_lowercase());
        if WITHOUT_EFFECT.split(' ').any(|known| known == lower) {
            return true;
        }
        let setting = match lower.as_str() {
            "schema" | "currentschema" => Some("search_path"),
            other => SETTINGS.split(' ').find(|known| *known == other),
        };
        if let Some(setting) = setting {
            // It is in the default, and some poolers accept no setting.
            if (setting, value) != ("search_path", "public") {
                self.settings.push((setting, value.to_owned()));
            }
            return true;
        }
        match (name, value) {
            ("keepalives_count", count) => match count.parse() {
                Ok(count) => self.keepalives_retries = Some(count),
                Err(_) => self.refuse(name, "write a number, `keepalives_count=6`"),
            },
            ("target_session_attrs", "primary") => {
                self.server = Some(TargetSessionAttrs::ReadWrite);
            }
            ("target_session_attrs", "standby") => {
                self.server = Some(TargetSessionAttrs::ReadOnly);
            }
            ("target_session_attrs", "prefer-standby") => {
                self.refuse(name, "write `standby` or `any`");
            }
            _ => {
                let refused = REFUSED.lines().find_map(|line| {
                    let (names, rest) = line.split_once(" | ")?;
                    let is_it = names.split(' ').any(|known| known == name);
                    rest.split_once(" | ").filter(|_| is_it)
                });
                let Some((accepted, write)) = refused else {
                    return false;
                };
                if !accepted.split_whitespace().any(|known| known == value) {
                    self.refuse(name, write);
                }
            }
        }
        true
    }

    fn refuse(&mut self, name: &str, write: &str) {
        let why = format!("`{name}` in the database URL is not supported: {write}");
        self.refusal.get_or_insert(why);
    }

    /// Adds the options for which tokio-postgres has other names.
    pub(super) fn apply(&self, config: &mut Config) {
        if let Some(retries) = self.keepalives_retries {
            config.keepalives_retries(retries);
        }
        if let Some(server) = self.server {
            config.target_session_attrs(server);
        }
        let options = config.get_options().map(str::to_owned);
        // The server splits the text at spaces.
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(' ', "\\ ");
        let settings = self.settings.iter();
        let settings = settings.map(|(name, value)| format!("-c {name}={}", escaped(value)));
        if !self.settings.is_empty() {
            config.options(joined(options.into_iter().chain(settings), " "));
        }
    }
}

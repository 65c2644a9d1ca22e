//! Reading the URL of a database: `postgres://[user[:password]@]host[:port][,host[:port]…]/[database][?…]`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::tls::Tls;
use crate::Error;

const DEFAULT_PORT: u16 = 5432;
const DEFAULT_SCHEMA: &str = "quorlock";
/// As long as PostgreSQL keeps any name, in bytes.
const LONGEST_NAME: usize = 63;
const REMEDY: &str = "write postgres://[user[:password]@]host[:port][,host[:port]...]/database, with special characters \
     percent-encoded; or postgres:///database?host=/DIRECTORY for a socket there";
const PARAMETERS: &str = "use host, port, schema, name, durable, sslmode, sslrootcert, sslcert, sslkey, target_session_attrs, \
     or none";

/// A connection that says nothing for so long is asked whether it lives, and how often.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;

/// Where a database is, and how to log in.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
    /// A plain name, which needs no quotes in SQL.
    pub(super) schema: String,
    /// Whether the tables were asked to be logged; `None` if they may be either.
    pub(super) durable: Option<bool>,
    /// Whether it is this machine's.
    pub(super) is_local: bool,
    /// Which of the locker's nodes it is.
    pub(super) index: usize,
    /// The URL without secrets.
    pub(super) label: String,
    /// What it is called in its set of nodes.
    pub(super) member: String,
}

/// How a connection is secured, in the words of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Security {
    /// Not at all.
    Disable,
    /// As the server likes it, whoever it is.
    #[default]
    Prefer,
    /// By TLS, whoever the server is; if an authority is named, as `VerifyCa`.
    Require,
    /// By TLS, to a server that an authority vouches for, by whatever name.
    VerifyCa,
    /// The same, and by the name in the URL.
    VerifyFull,
}

/// Files for TLS: whom to trust, and how to prove who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// What the part behind the question mark says.
struct Parameters {
    directory: Option<String>,
    port: Option<u16>,
    schema: String,
    name: Option<String>,
    durable: Option<bool>,
    security: Security,
    files: TlsFiles,
    any_role: bool,
}

impl Address {
    /// Reads the URL of the `index`-th node. No error shows the URL: it may hold a password.
    pub(super) fn parse(index: usize, text: &str) -> Result<Self, Error> {
        let refuse = |(problem, remedy): (String, &str)| {
            Error::misuse(format!("the URL of node {} {problem}", index + 1), remedy)
        };
        let (_, rest) = text.split_once("://").unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let said = Parameters::read(query).map_err(refuse)?;
        let mut config = Config::new();
        let mut places = Vec::new();
        if let Some(directory) = &said.directory {
            let port = said.port.unwrap_or(DEFAULT_PORT);
            config.host_path(directory).port(port);
            places.push(format!("{directory}:{port}"));
        }
        for host in hosts.split(',').filter(|_| said.directory.is_none()) {
            let Some((host, port)) = place(host) else {
                let problem = "names no host, or a port that is no number".to_owned();
                return Err(refuse((problem, REMEDY)));
            };
            config.host(host.trim_matches(['[', ']'])).port(port);
            places.push(format!("{host}:{port}"));
        }
        if said.directory.is_some() && !hosts.is_empty() {
            let problem = "names a host, and a directory of a socket as well".to_owned();
            return Err(refuse((problem, REMEDY)));
        }
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            config.user(decoded(user));
            if !password.is_empty() {
                config.password(percent_decode_str(password).collect::<Vec<u8>>());
            }
        }
        let database = database.trim_end_matches('/');
        if !database.is_empty() {
            config.dbname(decoded(database));
        }
        if database.contains(['/', ',', ' ']) {
            let problem = "has a slash, a comma or a space in the name of the database".to_owned();
            return Err(refuse((problem, "write it percent-encoded: %2F, %2C, %20")));
        }
        // What goes over a socket of this machine is nobody else's, as PostgreSQL's own clients see it.
        let security = if said.directory.is_some() { Security::Disable } else { said.security };
        let tls = Tls::new(security, &said.files)?;
        config
            .application_name("quorlock")
            .ssl_mode(match security {
                Security::Disable => SslMode::Disable,
                Security::Prefer => SslMode::Prefer,
                _ => SslMode::Require,
            })
            // One that cannot be written to is none that grants locks: the next host may be its primary.
            .target_session_attrs(if said.any_role || places.len() == 1 {
                TargetSessionAttrs::Any
            } else {
                TargetSessionAttrs::ReadWrite
            })
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES);
        let schema = match &*said.schema {
            DEFAULT_SCHEMA => String::new(),
            schema => format!("?schema={schema}"),
        };
        let label = format!("postgres://{}/{database}{schema}", places.join(","));
        let member =
            said.name.unwrap_or_else(|| format!("{}/{database}{schema}", places.join("+")));
        Ok(Self {
            config,
            tls,
            schema: said.schema,
            durable: said.durable,
            is_local: said.directory.is_some(),
            index,
            label,
            member,
        })
    }
}

impl Parameters {
    fn read(query: &str) -> Result<Self, (String, &'static str)> {
        let mut said = Self {
            directory: None,
            port: None,
            schema: DEFAULT_SCHEMA.to_owned(),
            name: None,
            durable: None,
            security: Security::default(),
            files: TlsFiles::default(),
            any_role: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            // Not the value: a password may have been mistyped into its place.
            let wrong = |remedy| {
                (format!("has the parameter {key} with a value that it cannot have"), remedy)
            };
            match key {
                "host" if value.starts_with('/') && !value.contains([',', ' ', '+']) => {
                    said.directory = Some(value);
                }
                "host" => {
                    return Err(wrong(
                        "name the directory of a socket, such as host=/run/postgresql",
                    ));
                }
                "port" => said.port = Some(value.parse().map_err(|_| wrong("write a number"))?),
                "schema" if is_plain(&value) => said.schema = value,
                "schema" => {
                    return Err(wrong(
                        "a schema has a name of 1 to 63 small letters, digits and _, and begins with no digit",
                    ));
                }
                "name" if is_name(&value) => said.name = Some(value),
                "name" => {
                    return Err(wrong(
                        "a name has 1 to 64 letters, digits and any of -_.:/[], such as ?name=lock-a",
                    ));
                }
                "durable" => {
                    said.durable = Some(match &*value {
                        "1" | "true" => true,
                        "0" | "false" => false,
                        _ => return Err(wrong("write durable=1 or durable=0")),
                    });
                }
                "sslmode" => {
                    said.security = match &*value {
                        "disable" => Security::Disable,
                        // It begins without, and goes on with TLS if it must.
                        "allow" | "prefer" => Security::Prefer,
                        "require" => Security::Require,
                        "verify-ca" => Security::VerifyCa,
                        "verify-full" => Security::VerifyFull,
                        _ => {
                            return Err(wrong(
                                "write disable, prefer, require, verify-ca or verify-full",
                            ));
                        }
                    };
                }
                "sslrootcert" => said.files.ca = Some(value.into()),
                "sslcert" => said.files.cert = Some(value.into()),
                "sslkey" => said.files.key = Some(value.into()),
                "target_session_attrs" => {
                    said.any_role = match &*value {
                        "any" => true,
                        "read-write" | "primary" => false,
                        _ => {
                            return Err(wrong(
                                "write any or read-write: locks are not taken on a standby",
                            ));
                        }
                    };
                }
                _ => {
                    let problem = format!("has the parameter {key:?}, which is not known there");
                    return Err((problem, PARAMETERS));
                }
            }
        }
        if said.files.cert.is_some() != said.files.key.is_some() {
            let problem = "names a certificate without its key, or a key without its certificate";
            return Err((problem.to_owned(), "name both: ?sslcert=FILE&sslkey=FILE"));
        }
        Ok(said)
    }
}

/// A host and its port.
fn place(text: &str) -> Option<(String, u16)> {
    let is_v6 = text.starts_with('[');
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !is_v6 || host.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, DEFAULT_PORT),
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/@?#,+".contains(&byte);
    let is_host = !host.is_empty() && host.bytes().all(is_plain) && is_v6 == host.ends_with(']');
    (is_host && (is_v6 || !host.contains(':'))).then(|| (host.to_lowercase(), port))
}

/// Whether a schema may be called that: it is put into SQL as it is.
fn is_plain(name: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(rest)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("pg_")
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/[]".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.label)
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::Host;

    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse(0, url).unwrap()
    }

    #[test]
    fn reads_every_part_and_shows_no_secret() {
        let address = parse(
            "postgresql://al%40ice:p%2Cw@A,b:1,[::1]:2/my%20db?schema=locks_2&durable=1&sslmode=disable",
        );
        let hosts = ["a", "b", "::1"].map(|host| Host::Tcp(host.to_owned()));
        assert_eq!(address.config.get_hosts(), hosts);
        assert_eq!(address.config.get_ports(), [5432, 1, 2]);
        assert_eq!(address.config.get_user(), Some("al@ice"));
        assert_eq!(address.config.get_password(), Some(&b"p,w"[..]));
        assert_eq!(address.config.get_dbname(), Some("my db"));
        assert_eq!(address.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!((address.schema.as_str(), address.durable), ("locks_2", Some(true)));
        assert_eq!(address.label, "postgres://a:5432,b:1,[::1]:2/my%20db?schema=locks_2");
        assert_eq!(address.member, "a:5432+b:1+[::1]:2/my%20db?schema=locks_2");
        assert_eq!(format!("{address:?}"), format!("Address({})", address.label));
    }

    #[test]
    fn fills_in_what_is_left_out() {
        let address = parse("postgres://h");
        assert_eq!(
            (address.label.as_str(), address.member.as_str()),
            ("postgres://h:5432/", "h:5432/")
        );
        assert_eq!((address.schema.as_str(), address.durable), ("quorlock", None));
        assert_eq!(address.config.get_user(), None);
        let socket = parse("postgres://u@/db?host=/run/postgresql&port=7&name=lock-a");
        assert_eq!(socket.label, "postgres:///run/postgresql:7/db");
        assert_eq!((socket.member.as_str(), socket.is_local), ("lock-a", true));
    }

    #[test]
    fn refusals_name_the_fault_and_the_remedy_but_never_the_password() {
        for (url, says) in [
            ("postgres://", "names no host"),
            ("postgres://u:hunter2@/db", "names no host"),
            ("postgres://u:hunter2@a,,b/db", "names no host"),
            ("postgres://u:hunter2@a:x/db", "a port that is no number"),
            ("postgres://u:hunter2@a/b/c", "has a slash"),
            ("postgres://u:hunter2@a/b?host=/run", "a directory of a socket as well"),
            ("postgres://u:hunter2@a/b?schema=a%22;drop", "the parameter schema"),
            ("postgres://u:hunter2@a/b?schema=pg_x", "the parameter schema"),
            ("postgres://u:hunter2@a/b?sslmode=hunter2", "verify-full"),
            ("postgres://u:hunter2@a/b?durable=hunter2", "durable=1"),
            ("postgres://u:hunter2@a/b?sslcert=x", "a certificate without its key"),
            ("postgres://u:hunter2@a/b?target_session_attrs=standby", "not taken on a standby"),
            (
                "postgres://u:hunter2@a/b?channel_binding=require",
                "the parameter \"channel_binding\"",
            ),
        ] {
            let error = Address::parse(2, url).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("node 3"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}

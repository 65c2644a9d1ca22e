//! Reading the URL of a database: `mysql://[user[:password]@]host[:port]/database[?…]`, or `mariadb://…`.

use std::fmt;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};
use percent_encoding::percent_decode_str;

use super::tls;
use crate::Error;

const DEFAULT_PORT: u16 = 3306;
const REMEDY: &str = "write mysql://[user[:password]@]host[:port]/database, with special characters percent-encoded; or \
     mysql://[user[:password]@]/database?socket=/FILE for a socket there";
const PARAMETERS: &str = "use socket, name, ssl-mode, ssl-ca, ssl-cert, ssl-key, or none";

/// A connection that says nothing for so long is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The longest packet that is sent or taken, in bytes. No answer comes near it.
const LONGEST_PACKET: usize = 1 << 20;
/// More than there are procedures.
const STATEMENTS: usize = 32;

/// What holds from the first question on. MySQL takes the second part for a comment, and has no such limit.
const SETUP: &str = "SET autocommit = 1 /*M! , max_statement_time = 0 */";

/// Where a database is, and how to log in.
#[derive(Clone)]
pub(super) struct Address {
    /// As it is connected to at first.
    pub(super) opts: Opts,
    /// Without TLS, if a server may do without.
    pub(super) plain: Option<Opts>,
    /// The database, for messages.
    pub(super) database: String,
    /// Whether it is this machine's.
    pub(super) is_local: bool,
    /// Which of the locker's nodes it is.
    pub(super) index: usize,
    /// The URL without secrets.
    pub(super) label: String,
    /// What it is called in its set of nodes.
    pub(super) member: String,
}

/// How a connection is secured, in the words of MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Security {
    /// Not at all.
    Disabled,
    /// As the server likes it, whoever it is.
    #[default]
    Preferred,
    /// By TLS, whoever the server is.
    Required,
    /// By TLS, to a server that an authority vouches for by the name in the URL.
    VerifyIdentity,
}

/// Files for TLS: whom to trust, and how to prove who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) ca: Option<String>,
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
}

/// What the part behind the question mark says.
#[derive(Default)]
struct Parameters {
    socket: Option<String>,
    name: Option<String>,
    security: Security,
    files: TlsFiles,
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
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        let said = Parameters::read(query).map_err(refuse)?;
        let database = database.trim_end_matches('/');
        if database.is_empty() {
            return Err(refuse(("names no database".to_owned(), REMEDY)));
        }
        if database.contains(['/', ',', ' ']) {
            let problem = "has a slash, a comma or a space in the name of the database".to_owned();
            return Err(refuse((problem, "write it percent-encoded: %2F, %2C, %20")));
        }
        let mut opts = OptsBuilder::default()
            .db_name(Some(decoded(database)))
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEPALIVE))
            .stmt_cache_size(STATEMENTS)
            // Known beforehand, so that no connection has to ask for it.
            .max_allowed_packet(Some(LONGEST_PACKET))
            .wait_timeout(Some(usize::MAX))
            .setup(vec![SETUP]);
        let place = match (&said.socket, place(host)) {
            (Some(_), _) if !host.is_empty() => {
                let problem = "names a host, and a socket as well".to_owned();
                return Err(refuse((problem, REMEDY)));
            }
            (Some(socket), _) => {
                opts = opts.socket(Some(socket.clone()));
                socket.clone()
            }
            (None, Some((host, port))) => {
                opts = opts.ip_or_hostname(host.trim_matches(['[', ']'])).tcp_port(port);
                format!("{host}:{port}")
            }
            (None, None) => {
                let problem = "names no host, several, or a port that is no number".to_owned();
                return Err(refuse((problem, REMEDY)));
            }
        };
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            opts = opts.user(Some(decoded(user)));
            if !password.is_empty() {
                opts = opts.pass(Some(decoded(password)));
            }
        }
        let tls: Option<SslOpts> = tls::options(said.security, &said.files)?;
        let may_do_without = said.security == Security::Preferred && tls.is_some();
        let plain = may_do_without.then(|| Opts::from(opts.clone()));
        let label = format!("mysql://{place}/{database}");
        let member = said.name.unwrap_or_else(|| format!("{place}/{database}"));
        Ok(Self {
            opts: opts.ssl_opts(tls).into(),
            plain,
            database: decoded(database),
            is_local: said.socket.is_some(),
            index,
            label,
            member,
        })
    }
}

impl Parameters {
    fn read(query: &str) -> Result<Self, (String, &'static str)> {
        let mut said = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            // Not the value: a password may have been mistyped into its place.
            let wrong = |remedy| {
                (format!("has the parameter {key} with a value that it cannot have"), remedy)
            };
            match key {
                "socket" if value.starts_with('/') && !value.contains([',', ' ', '+']) => {
                    said.socket = Some(value);
                }
                "socket" => {
                    return Err(wrong(
                        "name the file of a socket, such as socket=/run/mysqld/mysqld.sock",
                    ));
                }
                "name" if is_name(&value) => said.name = Some(value),
                "name" => {
                    return Err(wrong(
                        "a name has 1 to 64 letters, digits and any of -_.:/[], such as ?name=lock-a",
                    ));
                }
                "ssl-mode" => {
                    said.security = match &*value.to_lowercase() {
                        "disabled" => Security::Disabled,
                        "preferred" => Security::Preferred,
                        "required" => Security::Required,
                        "verify-identity" | "verify_identity" => Security::VerifyIdentity,
                        _ => {
                            return Err(wrong(
                                "write disabled, preferred, required or verify-identity: an authority is never asked without the name",
                            ));
                        }
                    };
                }
                "ssl-ca" => said.files.ca = Some(value),
                "ssl-cert" => said.files.cert = Some(value),
                "ssl-key" => said.files.key = Some(value),
                _ => {
                    let problem = format!("has the parameter {key:?}, which is not known there");
                    return Err((problem, PARAMETERS));
                }
            }
        }
        if said.files.cert.is_some() != said.files.key.is_some() {
            let problem = "names a certificate without its key, or a key without its certificate";
            return Err((problem.to_owned(), "name both: ?ssl-cert=FILE&ssl-key=FILE"));
        }
        if said.files != TlsFiles::default() && said.security != Security::VerifyIdentity {
            let problem = "names files for TLS, which need not be used as it is written";
            return Err((problem.to_owned(), "add ssl-mode=verify-identity"));
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
    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse(0, url).unwrap()
    }

    #[test]
    fn reads_every_part_and_shows_no_secret() {
        let address = parse("mysql://al%40ice:p%2Cw@A:7/my%20db?name=lock-a&ssl-mode=disabled");
        assert_eq!((address.opts.ip_or_hostname(), address.opts.tcp_port()), ("a", 7));
        assert_eq!(address.opts.user(), Some("al@ice"));
        assert_eq!(address.opts.pass(), Some("p,w"));
        assert_eq!((address.opts.db_name(), &*address.database), (Some("my db"), "my db"));
        assert_eq!((&*address.label, &*address.member), ("mysql://a:7/my%20db", "lock-a"));
        assert_eq!(format!("{address:?}"), format!("Address({})", address.label));
    }

    #[test]
    fn fills_in_what_is_left_out() {
        let address = parse("mariadb://[::1]/db");
        assert_eq!((&*address.label, &*address.member), ("mysql://[::1]:3306/db", "[::1]:3306/db"));
        assert_eq!((address.opts.ip_or_hostname(), address.opts.user()), ("::1", None));
        let socket = parse("mysql://u@/db?socket=/run/my.sock");
        assert_eq!((&*socket.label, socket.is_local), ("mysql:///run/my.sock/db", true));
        assert_eq!(socket.opts.socket(), Some("/run/my.sock"));
    }

    #[test]
    fn refusals_name_the_fault_and_the_remedy_but_never_the_password() {
        for (url, says) in [
            ("mysql://", "names no database"),
            ("mysql://u:hunter2@h", "names no database"),
            ("mysql://u:hunter2@/db", "names no host"),
            ("mysql://u:hunter2@a,b/db", "names no host"),
            ("mysql://u:hunter2@a:x/db", "a port that is no number"),
            ("mysql://u:hunter2@a/b/c", "has a slash"),
            ("mysql://u:hunter2@a/b?socket=/run/x", "a socket as well"),
            ("mysql://u:hunter2@a/b?ssl-mode=hunter2", "verify-identity"),
            ("mysql://u:hunter2@a/b?ssl-ca=x", "ssl-mode=verify-identity"),
            ("mysql://u:hunter2@a/b?ssl-mode=verify-ca", "never asked without the name"),
            ("mysql://u:hunter2@a/b?ssl-mode=required&ssl-cert=x", "without its key"),
            ("mysql://u:hunter2@a/b?pool_max=3", "the parameter \"pool_max\""),
        ] {
            let error = Address::parse(2, url).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("node 3"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}

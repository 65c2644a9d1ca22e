//! Reading the URL of a cluster: `etcd[+mutex]://[user:password@]host[:port][,host[:port]…][/prefix]`.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::Error;
use crate::node::tls_files::TlsFiles;

const DEFAULT_PORT: u16 = 2379;
const DEFAULT_PREFIX: &str = "quorlock/";
/// The end of the scheme where the layout of the keys is that of another library.
const SHARED: &str = "+mutex";
const REMEDY: &str = "write etcd://[user:password@]host[:port][,host[:port]...][/prefix], with special characters in the \
     password percent-encoded";

/// Where a cluster is, and how to log in.
#[derive(Clone)]
pub(super) struct Address {
    /// Its members, as `host:port`. At least one.
    pub(super) endpoints: Vec<String>,
    pub(super) login: Option<(String, String)>,
    /// Put before every key.
    pub(super) prefix: String,
    pub(super) tls: Option<TlsFiles>,
    /// The URL without secrets.
    pub(super) label: String,
}

impl Address {
    /// Reads the URL of the `index`-th node. No error shows the URL: it may hold a password.
    pub(super) fn parse(index: usize, text: &str) -> Result<Self, Error> {
        let refuse = |problem: String, remedy: &str| {
            Error::misuse(format!("the URL of node {} {problem}", index + 1), remedy)
        };
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let endpoints = hosts.split(',').map(endpoint).collect::<Option<Vec<_>>>();
        let Some(endpoints) = endpoints.filter(|_| !hosts.is_empty()) else {
            return Err(refuse("has no host, or a port that is no number".to_owned(), REMEDY));
        };
        let login = match login.map(|login| login.split_once(':')) {
            None => None,
            Some(Some((user, password))) => Some((decoded(user), decoded(password))),
            Some(None) => {
                return Err(refuse("has a user without a password".to_owned(), REMEDY));
            }
        };
        let mut tls = scheme.starts_with("etcds").then(TlsFiles::default);
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let file = Some(PathBuf::from(decoded(value)));
            match (key, &mut tls) {
                ("ca", Some(tls)) => tls.ca = file,
                ("cert", Some(tls)) => tls.cert = file,
                ("key", Some(tls)) => tls.key = file,
                _ => {
                    let problem = format!("has the parameter {key:?}, which is not known there");
                    return Err(refuse(problem, "use ca, cert and key with etcds://, or none"));
                }
            }
        }
        if tls.as_ref().is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
            let problem = "names a certificate without its key, or a key without its certificate";
            return Err(refuse(problem.to_owned(), "name both: ?cert=FILE&key=FILE"));
        }
        // Keys that other libraries name may begin with a slash, and need not have a prefix at all.
        let is_shared = scheme.ends_with(SHARED);
        let path = if is_shared { path.trim_end_matches('/') } else { path.trim_matches('/') };
        let path = decoded(path);
        let prefix = match path.as_str() {
            "" if is_shared => String::new(),
            "" => DEFAULT_PREFIX.to_owned(),
            path => format!("{path}/"),
        };
        let shown = if path.is_empty() { String::new() } else { format!("/{path}") };
        let label = format!("{scheme}://{}{shown}", endpoints.join(","));
        Ok(Self { endpoints, login, prefix, tls, label })
    }
}

/// A host with its port.
fn endpoint(text: &str) -> Option<String> {
    let is_v6 = text.starts_with('[');
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !is_v6 || host.ends_with(']') => (host, port.parse::<u16>().ok()?),
        _ => (text, DEFAULT_PORT),
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/@?#,".contains(&byte);
    let is_host = !host.is_empty() && host.bytes().all(is_plain) && is_v6 == host.ends_with(']');
    (is_host && (is_v6 || !host.contains(':'))).then(|| format!("{host}:{port}"))
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
        let address = parse("etcds://al%40ice:p%2Cw@a,b:1,[::1]:2/x/y?ca=%2Fca.pem&cert=c&key=k");
        assert_eq!(address.endpoints, ["a:2379", "b:1", "[::1]:2"]);
        assert_eq!(address.login, Some(("al@ice".into(), "p,w".into())));
        assert_eq!(address.prefix, "x/y/");
        let tls = address.tls.as_ref().unwrap();
        assert_eq!(tls.ca.as_deref(), Some("/ca.pem".as_ref()));
        assert_eq!(format!("{address:?}"), "Address(etcds://a:2379,b:1,[::1]:2/x/y)");
    }

    #[test]
    fn fills_in_what_is_left_out() {
        let address = parse("etcd://localhost");
        assert_eq!(address.endpoints, ["localhost:2379"]);
        assert_eq!(
            (address.prefix.as_str(), address.login, address.tls),
            ("quorlock/", None, None)
        );
        assert_eq!(parse("etcd://a/").label, "etcd://a:2379");
        assert_eq!(parse("etcd://[::1]").endpoints, ["[::1]:2379"]);
    }

    #[test]
    fn a_prefix_that_is_shared_is_taken_as_it_is() {
        let prefix = |url| (parse(url).prefix, parse(url).label, parse(url).tls.is_some());
        let expected = |prefix: &str, label: &str, tls| (prefix.to_owned(), label.to_owned(), tls);
        assert_eq!(prefix("etcd+mutex://a"), expected("", "etcd+mutex://a:2379", false));
        assert_eq!(prefix("etcd+mutex://a/"), expected("", "etcd+mutex://a:2379", false));
        assert_eq!(prefix("etcd+mutex://a/x/"), expected("x/", "etcd+mutex://a:2379/x", false));
        assert_eq!(prefix("etcds+mutex://a//x"), expected("/x/", "etcds+mutex://a:2379//x", true));
    }

    #[test]
    fn refusals_name_the_fault_and_the_remedy_but_never_the_password() {
        for (url, says) in [
            ("etcd://", "has no host"),
            ("etcd://u:hunter2@", "has no host"),
            ("etcd://u:hunter2@a,,b", "has no host"),
            ("etcd://u:hunter2@a:x", "a port that is no number"),
            ("etcd://u:hunter2@::1", "a port that is no number"),
            ("etcd://hunter2@a", "a user without a password"),
            ("etcd://u:hunter2@a?ca=x", "the parameter \"ca\""),
            ("etcds://u:hunter2@a?cert=x", "a certificate without its key"),
            ("etcds://u:hunter2@a?pass=hunter2", "the parameter \"pass\""),
        ] {
            let error = Address::parse(2, url).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("node 3"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}

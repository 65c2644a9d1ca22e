//! What a server's error means, and what to do about it.

use crate::node::{Failure, FailureKind};
use crate::text::harmless;

/// So much of what a server says is shown, in characters.
pub(super) const SHOWN: usize = 300;

/// How servers of different ages say that a user may not do what a script does for it.
const SCRIPT_REFUSALS: [&str; 2] = ["The user executing the script", "ACL failure in script"];

/// A refused command as a failure with a remedy.
pub(super) fn rejected(error: &[u8]) -> Failure {
    let said = without_arguments(error);
    let code = match said.split(' ').next().unwrap_or_default() {
        // What a script may not do has no code of its own with any server.
        _ if SCRIPT_REFUSALS.iter().any(|refusal| said.contains(refusal)) => "NOPERM",
        code => code,
    };
    let (kind, remedy) = match code {
        "WRONGTYPE" if said.ends_with("dialect") => (
            FailureKind::WrongType,
            "all clients of a lock have to use one dialect; choose that, or another name or a prefix",
        ),
        "WRONGTYPE" => (
            FailureKind::WrongType,
            "the key is in use for something that is not a lock; choose another name or a prefix",
        ),
        "NOAUTH" => (FailureKind::Unfit, "put the password into the URL: redis://:PASSWORD@host"),
        "WRONGPASS" => (FailureKind::Unfit, "check user and password in the URL"),
        "NOPERM" => (
            FailureKind::Unfit,
            "give the user these rights: +hello +info +client|kill +select +set +setrange +get +del +pttl \
             +pexpire +type +time +eval +evalsha +script|load, for waiting in turn also +subscribe \
             +publish +zadd +zcard +zrange +zscore +zpopmin +zrem +hset +hget +hdel &:quorlock:inbox:*, for \
             lists +scan +getrange, for a faster release +delifeq with Valkey 9 or +delex with Redis 8.4, and \
             the keys of the locks with all that start like them, as in ~NAME*; \
             in the strict dialect also the mark of the server, ~:quorlock:set and ~:quorlock:sweep, where a \
             prefix stands before all of these, as in ~PREFIX:quorlock:set and &PREFIX:quorlock:inbox:*",
        ),
        "READONLY" => (FailureKind::Unfit, "it is a replica; name its primary instead"),
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => {
            (FailureKind::Unfit, "it belongs to a cluster; name independent servers instead")
        }
        "OOM" => (
            FailureKind::Rejected,
            "it is out of memory; raise maxmemory, or keep locks on a server of their own",
        ),
        "MISCONF" => (FailureKind::Rejected, "it cannot save to disk; look into its log"),
        "LOADING" => (FailureKind::Rejected, "it is still loading its data; wait"),
        _ => (FailureKind::Rejected, ""),
    };
    let text = if remedy.is_empty() { said } else { format!("{said}: {remedy}") };
    Failure::new(kind, text)
}

/// The text of an error without the arguments that some servers repeat in it: a token or a password
/// may be among them.
fn without_arguments(error: &[u8]) -> String {
    let text = String::from_utf8_lossy(error);
    let end = text.find("with args beginning with").unwrap_or(text.len());
    harmless(text[..end].trim_end_matches([',', ' ']), SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_a_server_repeats_are_not_shown() {
        let failure = rejected(
            b"ERR unknown command 'EVALSHA', with args beginning with: 'sha' '1' 'n' 's3cret' ",
        );
        assert_eq!(failure.to_string(), "ERR unknown command 'EVALSHA'");
        assert_eq!(failure.kind(), FailureKind::Rejected);
    }

    #[test]
    fn known_errors_carry_a_remedy() {
        for (error, kind, remedy) in [
            (&b"NOAUTH Authentication required."[..], FailureKind::Unfit, "redis://:PASSWORD@host"),
            (b"WRONGTYPE Operation against a key", FailureKind::WrongType, "another name"),
            (b"OOM command not allowed", FailureKind::Rejected, "raise maxmemory"),
            (b"READONLY You can't write", FailureKind::Unfit, "primary"),
            (b"NOPERM this user has no permissions", FailureKind::Unfit, "+evalsha"),
            (b"ERR The user executing the script can't run it", FailureKind::Unfit, "+zadd"),
            (b"ERR ACL failure in script: User a may not", FailureKind::Unfit, "+zadd"),
        ] {
            let failure = rejected(error);
            assert_eq!(failure.kind(), kind);
            assert!(failure.to_string().contains(remedy), "{failure}");
        }
    }
}

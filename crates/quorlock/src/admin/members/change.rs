//! Changing the set of nodes by one.

use std::sync::Arc;

use super::{Changed, MemberChange, Nodes, Progress, names, report};
use crate::Error;
use crate::drive::{Known, Looked, Set, Settled};
use crate::node::{
    self, ClientId, ClosedFor, Mark, Marker, MarkerState, Members, Node, NodeContext, NodeOptions,
    Writes,
};
use crate::runtime::{Runtime, random_u64};
use crate::settings::Settings;
use quorlock_protocol::Carries;

/// A change that was asked for, in full.
struct Plan {
    /// All nodes of both sets: those of the new one first.
    urls: Vec<String>,
    names: Vec<String>,
    /// How many of them are in the new set.
    new_count: usize,
    /// The members of the old set among them.
    old: Vec<usize>,
    /// The one that leaves, and the one that joins.
    leaves: Option<usize>,
    joins: Option<usize>,
}

impl Plan {
    fn new(urls: &[String], change: &MemberChange) -> Result<Self, Error> {
        let mut names = names(urls, &[])?;
        let mut urls = urls.to_vec();
        let (leaving, joining) = match change {
            MemberChange::Add(new) => (None, Some(new)),
            MemberChange::Remove(old) => (Some(old), None),
            MemberChange::Replace { old, new } => (Some(old), Some(new)),
        };
        let left = leaving.map(|old| position(&names, old)).transpose()?;
        let left = left.map(|index| (urls.remove(index), names.remove(index)));
        if let Some(new) = joining {
            let name = node::member(urls.len(), new)?;
            let known = names.contains(&name) || left.as_ref().is_some_and(|(_, old)| *old == name);
            if known {
                return Err(Error::misuse(
                    format!("{name} is a member of the set already"),
                    "name a node that is not, or leave the set as it is",
                ));
            }
            urls.push(new.clone());
            names.push(name);
        }
        let new_count = urls.len();
        if new_count == 0 {
            return Err(Error::misuse("the last member is to be removed", "replace it instead"));
        }
        let joins = joining.map(|_| new_count - 1);
        let leaves = left.map(|(url, name)| {
            urls.push(url);
            names.push(name);
            new_count
        });
        let old = (0..urls.len()).filter(|index| Some(*index) != joins).collect();
        Ok(Self { urls, names, new_count, old, leaves, joins })
    }
}

impl Plan {
    /// What the nodes of the new set have to agree on.
    fn context_of_new(&self, context: &NodeContext) -> NodeContext {
        let old = &context.members;
        let names = self.names[..self.new_count].to_vec();
        let members = Members::new(names, old.max_ttl(), old.clock_ahead());
        NodeContext { members, servers: Arc::default(), ..context.clone() }
    }
}

/// Which member it is, by its name or URL.
fn position(names: &[String], old: &str) -> Result<usize, Error> {
    let by_url = node::member(0, old).ok();
    let is = |name: &String| name == old || Some(name) == by_url.as_ref();
    names.iter().position(is).ok_or_else(|| {
        let shown = by_url.unwrap_or_else(|| "what was named".to_owned());
        Error::misuse(
            format!("{shown} is not a member of the set {}", names.join(", ")),
            "name one of them",
        )
    })
}

/// How a member of the old set stands to a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// It still carries the old set, or would carry it again; `formed` if it is known to.
    Open {
        formed: bool,
    },
    /// It was closed, or carries the new set.
    Over,
    /// It carries no set, and knows of none.
    Free,
    Unknown,
}

fn stands(known: &Known, old: &Members, new: &Members) -> Result<Stands, String> {
    let Ok(marker) = known else { return Ok(Stands::Unknown) };
    let Some(marker) = marker else { return Ok(Stands::Over) };
    let of = |members: &Members| marker.members.as_ref().is_some_and(|it| it == members);
    match marker.state {
        MarkerState::Absent | MarkerState::Blank => Ok(Stands::Free),
        _ if of(new) => Ok(Stands::Over),
        MarkerState::Forming | MarkerState::Formed if of(old) => {
            Ok(Stands::Open { formed: marker.state == MarkerState::Formed && !marker.restarted })
        }
        _ => Err(marker.of_another_set(old)),
    }
}

/// Takes a change as far as it goes at once.
pub(crate) async fn change(
    urls: &[String],
    context: &NodeContext,
    change: &MemberChange,
    gone: bool,
) -> Result<Changed, Error> {
    let plan = Plan::new(urls, change)?;
    let context = plan.context_of_new(context);
    context.options.clone().resolve(&plan.urls, false, &context.settings)?;
    let nodes = Nodes::open(&plan.urls, &[], &context).await?;
    carry_out(&plan, &nodes, gone).await
}

/// The same for nodes of one's own making that are connected: those of the new set first, of which the last one
/// may be new, then the one that leaves, if there is one. For tests of such nodes.
///
/// # Errors
/// [`Error::Misuse`] as [`Admin::change_members`](crate::admin::Admin::change_members).
#[doc(hidden)]
pub async fn change_own_nodes(
    nodes: Vec<Arc<dyn Node>>,
    new_count: usize,
    joins: bool,
    settings: &Settings,
    options: &NodeOptions,
    runtime: &Arc<dyn Runtime>,
) -> Result<Progress, Error> {
    let names: Vec<_> = nodes.iter().map(|node| node.label().to_owned()).collect();
    let joins = joins.then(|| new_count - 1);
    let old = (0..nodes.len()).filter(|index| Some(*index) != joins).collect();
    let leaves = (nodes.len() > new_count).then_some(new_count);
    let plan = Plan { urls: Vec::new(), names, new_count, old, leaves, joins };
    let client = ClientId::random(&**runtime);
    let context = NodeContext::new(&[""; 0], &nodes, settings, options, runtime, client)?;
    let nodes = Nodes { nodes, context: &plan.context_of_new(&context) };
    Ok(carry_out(&plan, &nodes, false).await?.progress)
}

/// The context of `nodes` is that of the new set.
async fn carry_out(plan: &Plan, nodes: &Nodes<'_>, gone: bool) -> Result<Changed, Error> {
    let (context, new) = (nodes.context, &nodes.context.members);
    let old_names = plan.old.iter().map(|index| plan.names[*index].clone());
    let old = &Members::new(old_names, new.max_ttl(), new.clock_ahead());
    let mut looked = nodes.look().await;
    check(plan, &nodes.nodes, &looked.known, old, new, gone)?;
    close(plan, nodes, &mut looked, old, new).await?;
    let (new_nodes, _) = nodes.nodes.split_at(plan.new_count);
    let left = plan.leaves.and_then(|index| left(&looked.known[index], old, new, gone));
    let closed = plan.old.iter().filter(|index| {
        Some(**index) != plan.leaves
            && matches!(stands(&looked.known[**index], old, new), Ok(Stands::Over))
    });
    if closed.count() + usize::from(left.is_some()) < old.quorum().enough() {
        let report = report(new_nodes, &looked.known, &plan.names, new)?;
        return Ok(Changed { report, progress: Progress::Interrupted });
    }
    let former = left.as_slice();
    let set = Set { former, trusting: false, ..context.set(new_nodes) };
    let (settled, known) = set.settle().await;
    let report = report(new_nodes, &known, &plan.names, new)?;
    let progress = match settled {
        Settled::Yes => Progress::Done,
        Settled::After(left) => Progress::Forming(left),
        Settled::Blocked | Settled::No => Progress::Interrupted,
    };
    Ok(Changed { report, progress })
}

/// What is known of the member that leaves: nothing, unless it is closed in favour of the new set, or the
/// caller states that it is gone. One that another change has closed does not count for this one.
fn left(known: &Known, old: &Members, new: &Members, gone: bool) -> Option<Carries> {
    let counts = match stands(known, old, new) {
        Ok(Stands::Over) => true,
        Ok(Stands::Unknown | Stands::Free) => gone,
        Ok(Stands::Open { .. }) | Err(_) => false,
    };
    counts.then(|| ClosedFor::of(old).in_favour_of_another())
}

/// Refuses a change that would not come to its end, before anything is changed.
fn check(
    plan: &Plan,
    nodes: &[Arc<dyn Node>],
    known: &[Known],
    old: &Members,
    new: &Members,
    gone: bool,
) -> Result<(), Error> {
    let refuse = |index: usize, why: &str, remedy: &str| {
        Err(Error::misuse(format!("node {} {why}", nodes[index].label()), remedy))
    };
    let (mut evidence, mut begun) = (0, false);
    for &index in &plan.old {
        match stands(&known[index], old, new) {
            Ok(Stands::Over) => (evidence, begun) = (evidence + 1, true),
            Ok(Stands::Open { formed: true }) => evidence += 1,
            Ok(_) => {}
            Err(why) => {
                return refuse(index, &why, "complete the change that was begun, or name that set");
            }
        }
    }
    if let Some(Ok(Some(marker))) = plan.joins.map(|index| &known[index])
        && marker.carries(new) == Carries::Another
    {
        let index = plan.joins.unwrap_or_default();
        let why = marker.of_another_set(new);
        let why = why.rsplit_once("; ").map_or(why.as_str(), |(why, _)| why);
        return refuse(index, why, "use a new node, or one that was emptied and has no clients");
    }
    let unknown = |index: usize| known[index].is_err();
    let why = |index: usize| match &known[index] {
        Err(failure) => format!("cannot be asked: {failure}"),
        Ok(_) => String::new(),
    };
    if let Some(index) = plan.leaves.filter(|index| unknown(*index) && !gone) {
        return refuse(
            index,
            &why(index),
            "bring it up, or say --gone if it never comes back with what it knows",
        );
    }
    if !begun && let Some(index) = (0..plan.new_count).find(|index| unknown(*index)) {
        return refuse(index, &why(index), "bring it up first: nothing was changed");
    }
    let needed = old.quorum().enough();
    if evidence < needed {
        return Err(Error::misuse(
            format!(
                "{evidence} of the {} nodes of the set {old} vote for it, and {needed} are needed to \
                 change it",
                old.names().len()
            ),
            "wait until they do (quorlock nodes), or if none of them is used yet, run quorlock init \
             with the new list",
        ));
    }
    Ok(())
}

/// Closes all members of the old set that can be asked.
async fn close(
    plan: &Plan,
    nodes: &Nodes<'_>,
    looked: &mut Looked,
    old: &Members,
    new: &Members,
) -> Result<(), Error> {
    let runtime = &*nodes.context.runtime;
    let closed_for = ClosedFor { digest: old.digest().to_owned(), members: old.names().len() };
    let mark = |marker: &Marker| Mark {
        seen: marker.instance.clone(),
        writes: Writes::Closed { closed_for: closed_for.clone(), successor: new.clone() },
        nonce: random_u64(runtime),
    };
    let marks = looked.known.iter().enumerate().map(|(index, known)| {
        let open = matches!(stands(known, old, new), Ok(Stands::Open { .. }));
        match known {
            Ok(Some(marker)) if open && plan.old.contains(&index) => Some(mark(marker)),
            _ => None,
        }
    });
    let marks: Vec<_> = marks.collect();
    if marks.iter().any(Option::is_some) {
        looked.mark(&nodes.nodes, runtime, marks).await;
    }
    for &index in &plan.old {
        // Another change of the same set has come first there, or the node was marked meanwhile.
        if matches!(stands(&looked.known[index], old, new), Ok(Stands::Open { .. }) | Err(_)) {
            return Err(Error::misuse(
                format!("node {} was changed by somebody else", nodes.nodes[index].label()),
                "look at it with quorlock nodes, and run one of the changes again",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::Failure;

    fn plan(change: &MemberChange) -> Result<Plan, Error> {
        let urls = ["redis://a", "redis://b", "redis://c"].map(str::to_owned);
        Plan::new(&urls, change)
    }

    #[test]
    fn a_change_is_of_one_member() {
        let new = || "redis://u:secret@d".to_owned();
        let replaced =
            plan(&MemberChange::Replace { old: "b:6379".to_owned(), new: new() }).unwrap();
        assert_eq!(replaced.names, ["a:6379", "c:6379", "d:6379", "b:6379"]);
        assert_eq!((replaced.new_count, replaced.joins, replaced.leaves), (3, Some(2), Some(3)));
        assert_eq!(replaced.old, [0, 1, 3]);
        let added = plan(&MemberChange::Add(new())).unwrap();
        assert_eq!(added.names, ["a:6379", "b:6379", "c:6379", "d:6379"]);
        assert_eq!((added.new_count, added.joins, added.leaves), (4, Some(3), None));
        assert_eq!(added.old, [0, 1, 2]);
        let removed = plan(&MemberChange::Remove("redis://c".to_owned())).unwrap();
        assert_eq!(removed.names, ["a:6379", "b:6379", "c:6379"]);
        assert_eq!((removed.new_count, removed.joins, removed.leaves), (2, None, Some(2)));
        assert_eq!(removed.old, [0, 1, 2]);
    }

    /// Two changes of a set of two would otherwise each take the other's node for closed in its favour.
    #[test]
    fn a_member_that_another_change_has_closed_does_not_count() {
        let of = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned());
            Members::new(names, Duration::from_secs(30), Duration::from_millis(300))
        };
        let (old, new, rival) = (of(&["a", "b"]), of(&["a", "d"]), of(&["b", "e"]));
        let closed_for = |successor: &Members| {
            Ok(Some(Marker {
                members: Some(successor.clone()),
                closed_for: Some(ClosedFor::of(&old)),
                ..Marker::without_set(b"x".to_vec(), MarkerState::Closed)
            }))
        };
        let counts = |known: &Known, gone| left(known, &old, &new, gone).is_some();
        assert!(counts(&closed_for(&new), false));
        assert!(!counts(&closed_for(&rival), false) && !counts(&closed_for(&rival), true));
        let away: Known = Err(Failure::closed());
        assert!(!counts(&away, false) && counts(&away, true));
        let blank: Known = Ok(Some(Marker::without_set(b"x".to_vec(), MarkerState::Blank)));
        assert!(!counts(&blank, false) && counts(&blank, true));
    }

    #[test]
    fn a_change_that_makes_no_sense_says_what_is_there() {
        for (change, says) in [
            (
                MemberChange::Add("redis://x:p@b".to_owned()),
                "b:6379 is a member of the set already",
            ),
            (
                MemberChange::Remove("redis://d".to_owned()),
                "d:6379 is not a member of the set a:6379",
            ),
            (MemberChange::Remove("nonsense".to_owned()), "what was named is not a member"),
        ] {
            let error = plan(&change).err().expect("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
        let one = ["redis://a".to_owned()];
        let error = Plan::new(&one, &MemberChange::Remove("a:6379".to_owned())).err();
        assert!(error.is_some_and(|error| error.to_string().contains("replace it instead")));
        assert_eq!(format!("{:?}", MemberChange::Add("redis://:secret@a".to_owned())), "Add");
    }
}

//! What a cluster is, and what that means for the locks in it.

use std::sync::Arc;

use super::address::Address;
use super::client::{Client, Trouble};
use super::forget::forget_all;
use super::messages::{MemberListRequest, MemberListResponse, StatusResponse};
use super::store::EtcdStore;
use super::{LEAST_FOR_MEMBER, USUAL_LIMIT};
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, diagnose_round_trips, try_out};
use crate::node::{Failure, Node, NodeContext};
use crate::runtime::BoxFuture;

/// So many round trips are measured.
const SAMPLES: usize = 5;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let this user read and write all keys behind the prefix: grant messages are keys there",
);

/// Looks a cluster over.
pub(in crate::node) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let client = Client::new(&address, USUAL_LIMIT.max(LEAST_FOR_MEMBER))?;
    let opened = super::open(index, url, context).map(|node| Arc::new(node) as Arc<dyn Node>);
    let (context, name) = (context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "etcd");
        examination.text("prefix", address.prefix.as_str());
        if let Err(failure) = look(&mut examination, &client).await {
            examination.fail(&failure);
            return examination;
        }
        let store = EtcdStore::new(client, address.prefix, context.client, &context.runtime);
        if let Err(failure) = measure(&mut examination, &store, &context).await {
            examination.fail(&failure);
            return examination;
        }
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        // If it cannot be forgotten, it goes by itself.
        let _ = forget_all(&store, tried.as_slice()).await;
        examination
    }))
}

/// How long a read takes that the cluster agrees on.
async fn measure(
    examination: &mut Examination,
    store: &EtcdStore,
    context: &NodeContext,
) -> Result<(), Failure> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let sent = context.runtime.now();
        store.try_rights().await?;
        samples.push(context.runtime.now().since(sent));
    }
    let mut settings = context.settings.clone();
    settings.fit(&[super::capabilities()], None);
    diagnose_round_trips(examination, samples, &settings);
    Ok(())
}

/// Asks all members that are named, and for those that are not.
async fn look(examination: &mut Examination, client: &Client) -> Result<(), Failure> {
    let mut answers = Vec::new();
    let mut first_failure = None;
    for at in 0..client.len() {
        match client.status(at).await {
            Ok(status) => answers.push((at, status)),
            Err(failure) => {
                let text = format!("{}: {failure}", client.name(at));
                examination.warn("member", text, "start it, or take it out of the URL");
                first_failure.get_or_insert(client.passed_over(at, &failure));
            }
        }
    }
    let Some((_, first)) = answers.first() else {
        return match first_failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        };
    };
    examination.text("server", format!("etcd {}", first.version));
    if let Some(header) = first.header {
        examination.text("identity", format!("etcd cluster {:x}", header.cluster_id));
    }
    diagnose_members(examination, client, &answers);
    let list = "/etcdserverpb.Cluster/MemberList";
    let members: MemberListResponse =
        client.call(list, MemberListRequest {}).await.map_err(Trouble::failure)?;
    let voting = members.members.iter().filter(|member| !member.is_learner).count();
    examination.number("cluster_members", voting);
    diagnose_size(examination, voting);
    Ok(())
}

fn diagnose_members(
    examination: &mut Examination,
    client: &Client,
    answers: &[(usize, StatusResponse)],
) {
    for (at, status) in answers {
        let name = client.name(*at);
        if status.leader == 0 {
            let text = format!("{name} knows no leader: the cluster has lost its majority");
            examination.error("leader", text, "start the members that are down");
        } else if status.header.is_some_and(|header| header.member_id == status.leader) {
            examination.text("leader", name);
            examination.ok("leader", format!("{name} leads"));
        }
        for alarm in &status.errors {
            let remedy = if alarm.contains("NOSPACE") {
                "compact and defragment it, then run etcdctl alarm disarm"
            } else {
                "see etcdctl alarm list"
            };
            examination.error("alarm", format!("{name}: {alarm}"), remedy);
        }
    }
    let largest = answers.iter().map(|(_, status)| status.db_size).max().unwrap_or(0);
    examination.number("db_size_bytes", largest);
}

fn diagnose_size(examination: &mut Examination, voting: usize) {
    let can_lose = voting.saturating_sub(1) / 2;
    if can_lose == 0 {
        examination.warn(
            "class",
            format!(
                "CP: one etcd cluster of {voting}: no lock can be taken while a member is down"
            ),
            "run three members, or five",
        );
    } else {
        let text = format!(
            "CP: one etcd cluster of {voting}; locks survive the loss of {can_lose}, and are not forgotten"
        );
        examination.ok("class", text);
    }
}

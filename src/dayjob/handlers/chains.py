"""Chain: jobs of which each takes what the one before returned. `fetch.then(parse).then(store).enqueue(url=url)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from dayjob.errors import BadOption
from dayjob.job import Job

if TYPE_CHECKING:
    from dayjob.enqueue.workflows import Workflow

P = ParamSpec("P")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)


class Takes(Protocol[A_contra, R_co]):
    """A job type that can be enqueued with one argument, for type checkers."""

    def enqueue(self, value: A_contra, /) -> Job: ...

    def result(self, job: str, /) -> R_co: ...


class Chain(Generic[P, R_co]):
    """Jobs of which each takes what the one before returned, as its first argument. Each `enqueue` starts a workflow."""

    def __init__(self, *links: Any) -> None:
        for link in links[1:]:
            if not hasattr(type(link), "first_argument"):
                raise BadOption(
                    f"then(): {link!r} is no job: write @pool.job above the function, and give that"
                )
            if link.first_argument is None:
                raise BadOption(
                    f"{link.name} takes no argument by position, so it cannot follow {links[0].name}"
                )
        self._links = links

    def __repr__(self) -> str:
        return f"<chain {' -> '.join(link.name for link in self._links)}>"

    def then(self, following: Takes[R_co, S]) -> Chain[P, S]:
        """The chain with one more job, which takes what the last one returned. Raises BadOption."""
        return Chain(*self._links, following)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Workflow:
        """Start the chain with the arguments of its first job. Raises BadArguments, StoreError."""
        return self._workflow(args, kwargs).start()

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Workflow:
        """`enqueue`, awaited."""
        return await self._workflow(args, kwargs).astart()

    def _workflow(self, args: Any, kwargs: Any) -> Workflow:
        first, *others = self._links
        name = " -> ".join(dict.fromkeys((first.name, self._links[-1].name)))
        workflow: Workflow = first.pool.enqueuer.new_workflow(name, None)
        node = workflow.add(first, *args, **kwargs)
        for link in others:
            node = workflow.add(link, node.result)
        return workflow

// Submits a job and prints what happens to it: node dist/submit.js [ADDRESS [FILE]]
// FILE is a JobSpec in protobuf's JSON; without one it is the job below.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { create, fromJsonString } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { connect, follow } from "./client.js";
import { JobService, JobState } from "./gen/podium/jobs/v1/job_service_pb.js";
import { JobSpecSchema } from "./gen/podium/types/v1/spec_pb.js";

const [address = "grpc://127.0.0.1:50051", file] = process.argv.slice(2);
const spec = file
  ? fromJsonString(JobSpecSchema, readFileSync(file, "utf8"))
  : create(JobSpecSchema, {
      baseModel: "smollm2-135m-instruct",
      environment: { name: "email_search", config: { actions: ["search", "select"] } },
      rollout: { episode: { maxTurns: 3 }, sampling: { maxTokens: 24 } },
      training: { steps: 18n, learningRate: 2e-4 },
      seed: 1n,
    });

try {
  const jobs = connect(JobService, address, { token: process.env["PODIUM_TOKEN"] });
  // With one id a call that is repeated makes no second job.
  const request = { job: { spec }, requestId: randomUUID() };
  const made = await jobs.createJob(request, { timeoutMs: 30_000 });
  const jobId = made.job?.id ?? "";
  for await (const { event, step } of follow(jobs, jobId)) {
    const reward = step?.metrics["reward_mean"];
    const tail = reward === undefined ? "" : ` (reward ${reward.toFixed(3)})`;
    console.log(`${jobId} ${event?.sequence} ${event?.message}${tail}`);
  }
  const { job } = await jobs.getJob({ jobId }, { timeoutMs: 30_000 });
  console.log(`${jobId} ${JobState[job?.state ?? 0]?.toLowerCase()}`);
  process.exitCode = job?.state === JobState.SUCCEEDED ? 0 : 1;
} catch (error) {
  console.error(ConnectError.from(error).message);
  process.exitCode = 1;
}

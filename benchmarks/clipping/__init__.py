"""The parts of benchmarks/clip_grad_norm.py, from the outside in: command; cases, contenders, clock; record, report.

What is compared, on the same gradients, taking turns in one process:

    torch       torch.amp.GradScaler("cpu"): unscale_(optimizer), then torch.nn.utils.clip_grad_norm_(parameters, limit)
    ampscaler   ampscaler.GradScaler("cpu"): clip_grad_norm_(optimizer, limit)
    plain read  torch.sum of every large gradient, the fastest of a few ways, or of one tensor as large as the list: no
                pass over the data can be faster

"fused" is a fused torch optimizer, whose gradients our call only reads; "ordinary" one whose gradients it unscales in
place. The limit never binds, so that one visit undoes another: each gradient is multiplied by 2 and by 0.5 in turn.
Large lists exist several times, and the contenders rotate through them, so that no cache still holds what is read;
small lists exist once and stay in the cache, as they do after a backward pass. Before the clock starts, the allocator
has tidied up what the contender before has freed.

The JSON file:

    schema        "clip_grad_norm/1"
    label, quick  as given on the command line; quick results are a smoke test and are not judged
    machine       cpu, cores, memory_gib, last_level_cache_mib: no name of the machine, no path
    software      torch, torch_cpu_capability, ampscaler, cpu_isa (of our loops), commit, python
    load          average number of runnable processes before and after: 1 minute, of the whole machine
    seconds       measuring time per cell
    results       one object per case, kind and number of threads:
      case, kind, threads, tensors, bytes, copies, repetitions
      milliseconds      {"torch", "ampscaler", "plain_read"}: {"median", "best"}; plain_read is null for small lists
      ratio             {"median", "best"}: torch's time / ours
      ratio_goal, ratio_met              null where no goal is set; the medians decide
      ratio_limit       {"median", "best"}: torch's time / plain read; null where there is none
      read_share        {"median", "best"}: time of the plain read / ours; null for small lists
      read_share_goal, read_share_met    likewise
"""
